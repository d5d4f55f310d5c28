#include "server/worker/program/executor.h"

#include <algorithm>
#include <utility>

#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

// How long a device that runs behind is left alone between two looks at its oldest event.
constexpr absl::Duration kPoll = absl::Microseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(Device& device, Memory& memory,
                                                           Options options) {
  ASSIGN_OR_RETURN(Slot* const slot, device.OpenSlot());
  std::unique_ptr<Executor> executor(new Executor(device, memory, std::move(options), slot));
  executor->thread_ = std::thread([e = executor.get()] { e->Loop(); });
  return executor;
}

Executor::Executor(Device& device, Memory& memory, Options options, Slot* slot)
    : device_(device), memory_(memory), options_(std::move(options)), slot_(slot) {}

Executor::~Executor() {
  Stop();
  if (workspace_.bytes > 0) memory_.Free(MemoryUse::kWorkspace, workspace_);
}

bool Executor::Enter(Lane& lane, std::unique_ptr<Work>& work) {
  std::unique_ptr<Work> refused;
  {
    MutexLock lock(&mutex_);
    if (!stop_) {
      if (!running_ && ready_.empty() && flying_ == 0 && work->cost_us() <= options_.inline_us) {
        running_ = true;
        return true;
      }
      lane.queue.push_back(std::move(work));
      if (!lane.listed) ready_.push_back(&lane);
      lane.listed = true;
      if (!running_) wake_.Signal();
      return false;
    }
    refused = std::move(work);
  }
  refused->Refuse(Error(Reason::kDraining, "the worker ends"));
  return false;
}

void Executor::RunInline(std::unique_ptr<Work> work) {
  Launch(std::move(work));
  MutexLock lock(&mutex_);
  running_ = false;
  if (!ready_.empty() || flying_ > 0 || stop_) wake_.SignalAll();
}

std::unique_ptr<Work> Executor::Next() {
  if (ready_.empty() || flying_ >= options_.in_flight) return nullptr;
  Lane* const lane = ready_.front();
  ready_.pop_front();
  std::unique_ptr<Work> work = std::move(lane->queue.front());
  lane->queue.pop_front();
  lane->listed = !lane->queue.empty();
  if (lane->listed) ready_.push_back(lane);
  return work;
}

void Executor::Loop() {
  while (true) {
    std::unique_ptr<Work> work;
    {
      MutexLock lock(&mutex_);
      while (running_ || (ready_.empty() && flying_ == 0)) {
        if (stop_ && !running_) return;
        wake_.Wait(&mutex_);
      }
      running_ = true;
      work = Next();
    }
    const bool launched = work != nullptr;
    if (launched) Launch(std::move(work));
    const bool reaped = flying_ > 0 && Reap();
    MutexLock lock(&mutex_);
    running_ = false;
    if (!launched && !reaped) wake_.WaitWithTimeout(&mutex_, kPoll);
  }
}

absl::Status Executor::Reserve(uint64_t workspace_bytes) {
  if (workspace_bytes <= workspace_.bytes) return absl::OkStatus();
  while (flying_ > 0) Reap();  // what runs may be using it
  if (workspace_.bytes > 0) memory_.Free(MemoryUse::kWorkspace, std::exchange(workspace_, {}));
  ASSIGN_OR_RETURN(workspace_, memory_.Map(MemoryUse::kWorkspace, workspace_bytes));
  return absl::OkStatus();
}

void Executor::Launch(std::unique_ptr<Work> work) {
  absl::Status may = work->Start();
  if (may.ok()) may = Reserve(work->workspace_bytes());
  if (!may.ok()) return work->Refuse(may);
  if (work->revision() > 0) {
    MutexLock lock(&mutex_);
    revisions_.push_back(work->revision());
  }
  work->Enqueue(device_, *slot_, workspace_.address);
  const absl::StatusOr<Event> event = device_.Record(*slot_);
  // In order: what is done before an older one waits for it.
  if (event.ok() && (flying_ > 0 || device_.Poll(*event) == Progress::kPending)) {
    in_flight_.push_back({std::move(work), *event});
    ++flying_;
    return;
  }
  Conclude(std::move(work));
}

bool Executor::Reap() {
  if (device_.Poll(in_flight_.front().event) == Progress::kPending) return false;
  std::unique_ptr<Work> work = std::move(in_flight_.front().work);
  in_flight_.pop_front();
  --flying_;
  Conclude(std::move(work));
  return true;
}

void Executor::Conclude(std::unique_ptr<Work> work) {
  if (work->revision() > 0) {
    MutexLock lock(&mutex_);
    revisions_.erase(std::find(revisions_.begin(), revisions_.end(), work->revision()));
  }
  // A sticky error is read before any success is told.
  const absl::Status health = device_.CheckHealth();
  if (health.ok()) return work->Finish();
  work->Refuse(health);
  if (options_.lost) options_.lost(health);
}

std::vector<std::unique_ptr<Work>> Executor::Drop(Lane& lane) {
  std::vector<std::unique_ptr<Work>> dropped;
  MutexLock lock(&mutex_);
  for (std::unique_ptr<Work>& work : lane.queue) dropped.push_back(std::move(work));
  lane.queue.clear();
  if (lane.listed) ready_.erase(std::find(ready_.begin(), ready_.end(), &lane));
  lane.listed = false;
  return dropped;
}

uint64_t Executor::oldest_revision() const {
  MutexLock lock(&mutex_);
  uint64_t oldest = 0;
  const auto older = [&oldest](uint64_t revision) {
    if (revision > 0 && (oldest == 0 || revision < oldest)) oldest = revision;
  };
  for (uint64_t revision : revisions_) older(revision);
  for (const Lane* lane : ready_) {
    for (const std::unique_ptr<Work>& work : lane->queue) older(work->revision());
  }
  return oldest;
}

bool Executor::idle() const {
  MutexLock lock(&mutex_);
  return !running_ && ready_.empty() && flying_ == 0;
}

void Executor::Stop() {
  std::vector<std::unique_ptr<Work>> dropped;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    for (Lane* lane : ready_) {
      for (std::unique_ptr<Work>& work : lane->queue) dropped.push_back(std::move(work));
      lane->queue.clear();
      lane->listed = false;
    }
    ready_.clear();
    wake_.SignalAll();
  }
  for (std::unique_ptr<Work>& work : dropped)
    work->Refuse(Error(Reason::kDraining, "the worker ends"));
  if (thread_.joinable()) thread_.join();
}

}  // namespace backendd::worker
