// The whole daemon: owns the rooms and wires them; decides nothing itself.
#ifndef BACKENDD_SERVER_NODE_DAEMON_H_
#define BACKENDD_SERVER_NODE_DAEMON_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/listener/listener.h"
#include "server/node/config.h"
#include "server/node/node.h"
#include "server/node/workers/worker_supervisor.h"
#include "shared/clock.h"
#include "shared/fd/fd.h"

namespace backendd::node {

class Services;

// Owned by main, used by its thread alone. Create gives a daemon that serves; Drain and Stop end
// it.
class Daemon {
 public:
  // Errors: ALREADY_EXISTS (another daemon on the socket), what the system says, a required device
  // that the node does not have.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const Config& config,
                                                        const std::string& executable_dir);
  ~Daemon();

  // No new leases; holders hear how long they have. Waits for them, up to the drain timeout;
  // `hurry` is asked every few milliseconds whether to stop waiting.
  void Drain(const std::function<bool(absl::Duration wait)>& hurry);
  // Ends sessions and workers and removes the sockets. Within seconds.
  void Stop();

 private:
  bool HasSessions() const;
  explicit Daemon(const Config& config);

  const Config config_;
  SystemClock clock_;
  Fd lock_;  // held to the very end
  std::unique_ptr<WorkerSupervisor> workers_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_DAEMON_H_
