// Injected time. Leases, TTLs and deadlines run on steady time (CLOCK_MONOTONIC; a suspend does not
// count); wall time is for people's eyes only.
#ifndef BACKENDD_SHARED_CLOCK_H_
#define BACKENDD_SHARED_CLOCK_H_

#include <time.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace backendd {

class Clock {
 public:
  virtual ~Clock() = default;
  // Steady time since an arbitrary start (boot). Never goes back, never jumps with the wall clock.
  virtual absl::Duration Steady() const = 0;
  virtual absl::Time Wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  absl::Duration Steady() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::DurationFromTimespec(now);
  }
  absl::Time Wall() const override { return absl::Now(); }
};

}  // namespace backendd

#endif  // BACKENDD_SHARED_CLOCK_H_
