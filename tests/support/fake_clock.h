// A clock that stands until it is told to move.
#ifndef BACKENDD_TESTS_SUPPORT_FAKE_CLOCK_H_
#define BACKENDD_TESTS_SUPPORT_FAKE_CLOCK_H_

#include "shared/clock.h"
#include "shared/sync.h"

namespace backendd {

class FakeClock final : public Clock {
 public:
  absl::Duration Steady() const override {
    MutexLock lock(&mutex_);
    return now_;
  }
  absl::Time Wall() const override { return absl::UnixEpoch() + Steady(); }
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Duration now_ ABSL_GUARDED_BY(mutex_) = absl::Hours(1);
};

}  // namespace backendd

#endif  // BACKENDD_TESTS_SUPPORT_FAKE_CLOCK_H_
