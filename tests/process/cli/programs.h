// The real binaries as a shell would start them.
#ifndef BACKENDD_TESTS_PROCESS_CLI_PROGRAMS_H_
#define BACKENDD_TESTS_PROCESS_CLI_PROGRAMS_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

extern char** environ;

namespace backendd {

// A running program with its output on pipes. Killed and collected at its end.
class Program {
 public:
  Program(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) {
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    std::vector<char*> argv, envp;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& pair : environment) envp.push_back(const_cast<char*>(pair.c_str()));
    for (char** pair = environ; *pair != nullptr; ++pair) {
      if (!absl::StartsWith(*pair, "BACKENDD_") && !absl::StartsWith(*pair, "NO_COLOR")) {
        envp.push_back(*pair);
      }
    }
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    EXPECT_EQ(posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()), 0)
        << words[0];
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (int fd : fds_) close(fd);
  }

  pid_t pid() const { return pid_; }
  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }
  void Signal(int signal) { kill(pid_, signal); }

  // Reads until stdout holds `text`; false when the program ends or 20 s pass without it.
  bool AwaitOut(const std::string& text) {
    while (!absl::StrContains(text_[0], text)) {
      if (!Pump()) return absl::StrContains(text_[0], text);
    }
    return true;
  }
  // Its exit code, or 128 + n. One that neither ends nor says anything for 20 s is killed: a
  // failure.
  int Wait() {
    while (Pump()) continue;
    if (open_[0] || open_[1]) {
      ADD_FAILURE() << "process " << pid_ << " does not end; it said: " << out() << err();
      kill(pid_, SIGKILL);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  bool Pump() {
    pollfd ready[2] = {{open_[0] ? fds_[0] : -1, POLLIN, 0}, {open_[1] ? fds_[1] : -1, POLLIN, 0}};
    if (!(open_[0] || open_[1]) || poll(ready, 2, 20'000) <= 0) return false;
    for (int i : {0, 1}) {
      if (ready[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = read(fds_[i], buffer, sizeof(buffer));
      if (n > 0) text_[i].append(buffer, n);
      if (n <= 0) open_[i] = false;
    }
    return true;
  }

  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};
  bool open_[2] = {true, true};
  std::string text_[2];
};

// What a command came to.
struct Outcome {
  int code;
  std::string out, err;
};
inline Outcome RunToEnd(const std::vector<std::string>& words,
                        const std::vector<std::string>& environment = {}) {
  Program program(words, environment);
  const int code = program.Wait();
  return {code, program.out(), program.err()};
}

}  // namespace backendd

#endif  // BACKENDD_TESTS_PROCESS_CLI_PROGRAMS_H_
