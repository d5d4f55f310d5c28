// When a dead worker is started again. Pure; the clock is the caller's.
#ifndef BACKENDD_SERVER_NODE_WORKERS_RESTART_POLICY_H_
#define BACKENDD_SERVER_NODE_WORKERS_RESTART_POLICY_H_

#include <algorithm>
#include <deque>

#include "absl/time/time.h"

namespace backendd::node {

// After 0.1 s, doubling to 5 s; after `deaths` within `window` the breaker opens: the device is
// down and gets one try per `retry`. A worker that served for `window` starts the count anew.
class RestartPolicy {
 public:
  struct Options {
    absl::Duration first = absl::Milliseconds(100);
    absl::Duration longest = absl::Seconds(5);
    absl::Duration window = absl::Seconds(60);
    absl::Duration retry = absl::Minutes(5);
    size_t deaths = 3;
  };
  struct Next {
    absl::Duration delay;
    bool down;
  };
  explicit RestartPolicy(Options options) : options_(options), delay_(options.first) {}

  // `served`: how long the dead one had served.
  Next OnDeath(absl::Duration now, absl::Duration served) {
    if (served >= options_.window) {
      deaths_.clear();
      delay_ = options_.first;
      down_ = false;
    }
    deaths_.push_back(now);
    while (deaths_.front() <= now - options_.window) deaths_.pop_front();
    down_ = down_ || deaths_.size() >= options_.deaths;
    if (down_) return {options_.retry, true};
    const absl::Duration delay = delay_;
    delay_ = std::min(2 * delay_, options_.longest);
    return {delay, false};
  }

 private:
  Options options_;
  absl::Duration delay_;
  std::deque<absl::Duration> deaths_;
  bool down_ = false;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_WORKERS_RESTART_POLICY_H_
