// The one timer thread of the control plane.
#ifndef BACKENDD_SERVER_NODE_LEASE_LEASE_REAPER_H_
#define BACKENDD_SERVER_NODE_LEASE_LEASE_REAPER_H_

#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "shared/clock.h"
#include "shared/sync.h"

namespace backendd::node {

// Owned by the daemon. Calls `expire` when the next deadline has passed, never early; it answers
// with the deadline after that. Woken over 50 ms late, the process did not run: `stall` says for
// how long, and nobody is to lose by it. Ends with its destructor.
class LeaseReaper {
 public:
  using Expire = std::function<absl::Duration(absl::Duration stall)>;
  LeaseReaper(const Clock* clock, Expire expire);
  ~LeaseReaper();
  // An earlier deadline than the one waited for; any thread.
  void WakeAt(absl::Duration deadline);

 private:
  void Run();

  const Clock* clock_;
  const Expire expire_;
  Mutex mutex_;
  CondVar changed_;
  absl::Duration next_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_LEASE_LEASE_REAPER_H_
