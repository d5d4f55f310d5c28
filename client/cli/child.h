// The command that `backendctl run` runs: forked early, let go late.
#ifndef BACKENDD_CLIENT_CLI_CHILD_H_
#define BACKENDD_CLIENT_CLI_CHILD_H_

#include <signal.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace backendd::cli {

// Owned by one command, used by its one thread. The process is forked before any gRPC object exists
// (a fork with gRPC's threads and descriptors breaks both sides), waits on a pipe, and runs nothing
// if it is never started. A child not yet collected is left alone by the destructor: SIGTERM
// reaches it by the parent-death signal.
class Child {
 public:
  // `detached`: it outlives us. `mask`: the signal mask it gets.
  static absl::StatusOr<Child> Fork(std::vector<std::string> command, bool detached,
                                    const sigset_t& mask);
  Child(Child&& other) noexcept
      : pid_(other.pid_), start_fd_(std::exchange(other.start_fd_, -1)), started_(other.started_) {}
  ~Child();

  bool started() const { return started_; }
  // Runs the command with these variables too.
  void Start(const std::map<std::string, std::string>& environment);
  void Signal(int signal);
  // Its exit code if it has ended: its own, 128 + n for a signal.
  std::optional<int> Collect(bool wait = false);

 private:
  Child(pid_t pid, int start_fd) : pid_(pid), start_fd_(start_fd) {}

  pid_t pid_;
  int start_fd_;
  bool started_ = false;
};

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_CHILD_H_
