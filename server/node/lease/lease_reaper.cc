#include "server/node/lease/lease_reaper.h"

#include <algorithm>
#include <utility>

namespace backendd::node {
namespace {

constexpr absl::Duration kLate = absl::Milliseconds(50);
constexpr absl::Duration kLongestSleep = absl::Milliseconds(500);  // so that a stall is noticed

}  // namespace

LeaseReaper::LeaseReaper(const Clock* clock, Expire expire)
    : clock_(clock), expire_(std::move(expire)), thread_([this] { Run(); }) {}

LeaseReaper::~LeaseReaper() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void LeaseReaper::WakeAt(absl::Duration deadline) {
  MutexLock lock(&mutex_);
  if (deadline >= next_) return;
  next_ = deadline;
  changed_.SignalAll();
}

void LeaseReaper::Run() {
  absl::Duration stall = absl::ZeroDuration();
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      const absl::Duration now = clock_->Steady();
      if (next_ > now) {
        const absl::Duration until = std::min(next_, now + kLongestSleep);
        changed_.WaitWithTimeout(&mutex_, until - now);
        // Late by the clock, though nothing but this wait was done: the process was stopped.
        const absl::Duration late = clock_->Steady() - until;
        stall = late > kLate ? late : absl::ZeroDuration();
        if (stall == absl::ZeroDuration() && next_ > clock_->Steady()) continue;
        if (stopping_) return;
      }
      next_ = absl::InfiniteDuration();
    }
    const absl::Duration next = expire_(std::exchange(stall, absl::ZeroDuration()));
    MutexLock lock(&mutex_);
    next_ = std::min(next_, next);
  }
}

}  // namespace backendd::node
