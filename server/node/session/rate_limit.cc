#include "server/node/session/rate_limit.h"

#include <algorithm>

namespace backendd::node {

RateLimit::RateLimit(int per_second, int burst)
    : period_(per_second > 0 ? absl::Seconds(1) / per_second : absl::ZeroDuration()),
      depth_(period_ * std::max(burst, 1)) {}

absl::Duration RateLimit::Take(uid_t user, absl::Duration now) {
  absl::Duration& full_at = full_at_[user];
  const absl::Duration then = std::max(full_at, now) + period_;
  const absl::Duration wait = then - now - depth_;
  if (wait > absl::ZeroDuration()) return wait;
  full_at = then;
  return absl::ZeroDuration();
}

}  // namespace backendd::node
