// A worker process that only keeps the link: what it does wrong is told by STAND_IN.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "backendd/control/v1/control.pb.h"
#include "server/control/control_link.h"
#include "server/control/worker_start.h"

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main() {
  using namespace backendd;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(getppid()) != Variable(kDaemonPidVariable)) return 3;
  const std::string mode = Variable("STAND_IN");
  if (mode == "exit") return 7;
  if (mode == "mute") pause();
  if (mode == "raw") {  // a frame that is cut off
    const char part[] = {100, 0, 0, 0, 'x'};
    return write(kControlFd, part, sizeof part) == sizeof part ? 0 : 1;
  }
  // What it was started with, for the test to look at.
  if (const std::string path = Variable("STAND_IN_REPORT"); !path.empty()) {
    std::ofstream out(path);
    for (int fd = 0; fd < 64; ++fd)
      if (lseek(fd, 0, SEEK_CUR) >= 0 || errno != EBADF) out << "fd " << fd << "\n";
    for (char** entry = environ; *entry != nullptr; ++entry) out << *entry << "\n";
    std::ifstream adjustment("/proc/self/oom_score_adj");
    out << "pgid " << (getpgrp() == getpid() ? "own" : "shared") << "\n";
  }

  ControlLink link((Fd(kControlFd)));
  control::v1::Report hello;
  hello.mutable_hello()->set_abi(mode == "abi" ? "other" : ControlAbi());
  hello.mutable_hello()->mutable_device()->set_name("stand-in");
  (void)link.Send(hello);
  bool drain = false;
  (void)link.Run([&](absl::string_view bytes) {
    control::v1::Command command;
    if (!command.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) std::exit(4);
    // Silent from the second command on; the first puts it in service.
    if (mode == "silent" && command.sequence() > 1) return;
    control::v1::Report report;
    if (command.ping()) {
      report.mutable_status()->set_used_bytes(4096);
      (*report.mutable_status()->mutable_session_bytes())[7] = 4096;
      (void)link.Send(report);
    }
    for (const auto& end : command.ends()) {
      report.mutable_freed()->set_session_id(end.session_id());
      report.mutable_freed()->set_bytes(4096);
      (void)link.Send(report);
    }
    report.set_acknowledged(command.sequence());
    (void)link.Send(report);
    drain = drain || command.drain();
    if (drain) std::exit(0);
  });
  return 0;
}
