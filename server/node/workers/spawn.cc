#include "server/node/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/control/control_link.h"
#include "server/control/worker_start.h"
#include "shared/fd/pidfd.h"
#include "shared/status/macros.h"

namespace backendd::node {
namespace {

// Above the numbers that they get in the child, so that no dup2 overwrites a source.
Fd Above(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 16)); }

}  // namespace

absl::StatusOr<Spawned> SpawnWorker(const std::string& binary, int listener, int fd_listener,
                                    const Variables& variables) {
  if (access(binary.c_str(), X_OK) != 0)
    return absl::NotFoundError(absl::StrCat("no worker '", binary, "': ", std::strerror(errno)));
  using Ends = std::pair<Fd, Fd>;
  ASSIGN_OR_RETURN(Ends ends, ControlLink::MakeSockets());
  const Fd sources[] = {Above(ends.second.get()), Above(listener), Above(fd_listener)};

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int targets[] = {kControlFd, kListenerFd, kFdListenerFd};
  for (int i = 0; i < 3; ++i)
    posix_spawn_file_actions_adddup2(&actions, sources[i].get(), targets[i]);
  posix_spawn_file_actions_addclosefrom_np(&actions, kFdListenerFd + 1);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  // Its own process group: a Ctrl-C meant for the daemon must not cut the drain short.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  entries.push_back(absl::StrCat(kDaemonPidVariable, "=", getpid()));
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  std::string program = binary;
  char* arguments[] = {program.data(), nullptr};

  Spawned spawned;
  const int error = posix_spawn(&spawned.pid, binary.c_str(), &actions, &attributes, arguments,
                                environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return absl::InternalError(absl::StrCat("cannot start '", binary, "': ", std::strerror(error)));
  spawned.pidfd = OpenPidfd(spawned.pid);  // ours, not yet reaped: the pid cannot be another's
  spawned.control = std::move(ends.first);
  // The kernel shall take a worker before the daemon.
  std::ofstream(absl::StrCat("/proc/", spawned.pid, "/oom_score_adj")) << 500;
  return spawned;
}

std::string Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return "gone";
  }
  if (WIFSIGNALED(status))
    return absl::StrCat("killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                        ")");
  return absl::StrCat("exited with ", WEXITSTATUS(status));
}

}  // namespace backendd::node
