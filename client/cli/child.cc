#include "client/cli/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/exit_code.h"
#include "shared/status/error.h"

namespace backendd::cli {
namespace {

constexpr char kGo = 'G';

// Waits for kGo and NAME=VALUE texts, each ended by a zero byte; the pipe's end alone means no.
[[noreturn]] void Become(const std::vector<std::string>& command, int fd) {
  std::string told;
  char buffer[512];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) != 0;) {
    if (n > 0) told.append(buffer, n);
    if (n < 0 && errno != EINTR) break;
  }
  if (told.empty() || told[0] != kGo) _exit(0);
  for (absl::string_view pair : absl::StrSplit(told.substr(1), '\0', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    setenv(parts.first.c_str(), parts.second.c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const int error = errno;
  fprintf(stderr, "error: cannot run %s: %s\n", words[0], strerror(error));
  _exit(error == ENOENT ? kExitCommandNotFound : kExitCannotExecute);
}

}  // namespace

absl::StatusOr<Child> Child::Fork(std::vector<std::string> command, bool detached,
                                  const sigset_t& mask) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error(Reason::kInternal, absl::StrCat("no pipe: ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    return Error(Reason::kInternal, absl::StrCat("cannot fork: ", strerror(error)));
  }
  if (pid == 0) {
    close(ends[1]);
    if (!detached) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(0);  // it died before we asked
    }
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    Become(command, ends[0]);
  }
  close(ends[0]);
  return Child(pid, ends[1]);
}

Child::~Child() {
  if (start_fd_ >= 0) close(start_fd_);
}

void Child::Start(const std::map<std::string, std::string>& environment) {
  std::string told(1, kGo);
  for (const auto& [name, value] : environment) {
    absl::StrAppend(&told, name, "=", value, absl::string_view("\0", 1));
  }
  (void)!write(start_fd_, told.data(),
               told.size());  // below PIPE_BUF: whole or, to a dead child, not
  close(start_fd_);
  start_fd_ = -1;
  started_ = true;
}

void Child::Signal(int signal) { kill(pid_, signal); }

std::optional<int> Child::Collect(bool wait) {
  if (!started_ && start_fd_ >= 0 && wait) {
    close(start_fd_);
    start_fd_ = -1;
  }
  int status = 0;
  pid_t ended;
  do {
    ended = waitpid(pid_, &status, wait ? 0 : WNOHANG);
  } while (ended < 0 && errno == EINTR);
  if (ended != pid_) return std::nullopt;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace backendd::cli
