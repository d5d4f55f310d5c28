// Starts one worker process with exactly the descriptors it is meant to have.
#ifndef BACKENDD_SERVER_NODE_WORKERS_SPAWN_H_
#define BACKENDD_SERVER_NODE_WORKERS_SPAWN_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/node/workers/cpu_kernels.h"
#include "shared/fd/fd.h"

namespace backendd::node {

struct Spawned {
  pid_t pid = 0;
  Fd pidfd;
  Fd control;  // our end
};

// A worker's PDEATHSIG follows the calling *thread*: it must live as long as the daemon.
absl::StatusOr<Spawned> SpawnWorker(const std::string& binary, int listener, int fd_listener,
                                    const Variables& variables);

// "killed by signal 9 (Killed)", "exited with 3". Reaps; blocks until the process is gone.
std::string Reap(pid_t pid);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_WORKERS_SPAWN_H_
