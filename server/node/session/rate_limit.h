// How often each user may change what others see.
#ifndef BACKENDD_SERVER_NODE_SESSION_RATE_LIMIT_H_
#define BACKENDD_SERVER_NODE_SESSION_RATE_LIMIT_H_

#include <sys/types.h>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace backendd::node {

// A bucket of `burst` for each user, filled at `per_second`. Pure state; the owner locks.
class RateLimit {
 public:
  RateLimit(int per_second, int burst);  // per_second 0: unlimited
  // Zero: taken. Else nothing is, and so long it takes until one can be.
  absl::Duration Take(uid_t user, absl::Duration now);

 private:
  const absl::Duration period_, depth_;
  absl::flat_hash_map<uid_t, absl::Duration> full_at_;  // when the user's bucket is full again
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_SESSION_RATE_LIMIT_H_
