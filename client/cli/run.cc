// backendctl run --set FLAG=VALUE -- CMD...: a lease for the life of a command
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/child.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/held_lease.h"
#include "client/cli/value.h"
#include "shared/status/error.h"

namespace backendd::cli {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(10);  // from SIGTERM to SIGKILL of --on-lost=stop
constexpr int kSignals[] = {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// The lease is that of one HoldLease call: it needs no renewal, so a run that is stopped (Ctrl-Z,
// its command with it) keeps it. One run; lives on the stack of its command, single-threaded but
// for the lease's reader.
class LeasedRun {
 public:
  LeasedRun(const Arguments& arguments, Child child, int signals)
      : arguments_(arguments), child_(std::move(child)), signals_(signals) {}

  int Execute() {
    const absl::Status status = Acquire();
    if (!status.ok()) {
      if (!absl::IsUnavailable(status) || arguments_.Get("--if-unavailable") != "run") {
        Fail(arguments_, status);
        child_.Collect(true);
        return kExitRunFailed;
      }
      fprintf(stderr, "warning: %s; running without a lease\n", Escaped(status.message()).c_str());
      child_.Start({});
    }
    while (!exit_code_) Wait();
    return *exit_code_;
  }

 private:
  absl::Status Acquire() {
    auto connection = Connection::Open(arguments_);
    if (!connection.ok()) return connection.status();
    auto request = HoldRequest(*connection, arguments_, arguments_.All("--set"));
    if (!request.ok()) return request.status();
    socket_ = connection->socket();
    lease_ = std::make_unique<HeldLease>(*connection, *request);
    return absl::OkStatus();
  }

  void Wait() {
    pollfd ready[] = {{signals_, POLLIN, 0}, {lease_ ? lease_->ready_fd() : -1, POLLIN, 0}};
    int timeout = -1;
    if (kill_at_ != absl::InfiniteFuture()) {
      timeout = static_cast<int>(
          absl::ToInt64Milliseconds(std::max(absl::ZeroDuration(), kill_at_ - absl::Now())));
    }
    if (poll(ready, 2, timeout) == 0) {
      child_.Signal(SIGKILL);
      kill_at_ = absl::InfiniteFuture();
    }
    if (ready[0].revents != 0) OnSignal();
    if (ready[1].revents != 0 && !exit_code_) OnLease();
  }

  void OnSignal() {
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof(info)) != sizeof(info)) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      const std::optional<int> code = child_.Collect();
      if (code) End(stopped_for_loss_ ? int{kExitRunFailed} : *code);
    } else if (child_.started()) {
      // A terminal's Ctrl-C and Ctrl-\ reach the command by themselves.
      if (signal != SIGINT && signal != SIGQUIT) child_.Signal(signal);
    } else if (signal != SIGUSR1 && signal != SIGUSR2) {
      child_.Collect(true);
      End(128 + signal);
    }
  }

  void OnLease() {
    const auto event = lease_->Next();
    if (!event) return;
    if (const auto* message = std::get_if<v1::HoldLeaseResponse>(&*event)) {
      if (message->has_granted() && !child_.started()) {
        child_.Start({{"BACKENDD_ADDRESS", socket_},
                      {"BACKENDD_LEASE", IdText(message->granted().lease().lease_id())}});
      }
      if (message->has_ended()) cause_ = message->ended().cause();
      return;
    }
    const absl::Status& status = std::get<absl::Status>(*event);
    lease_.reset();
    if (!child_.started() && absl::IsUnavailable(status) &&
        arguments_.Get("--if-unavailable") == "run") {
      fprintf(stderr, "warning: no daemon serves; running without a lease\n");
      child_.Start({});
    } else if (!child_.started()) {
      Fail(arguments_,
           status.ok() ? Error(Reason::kLeaseConflict, "the lease was not granted") : status);
      child_.Collect(true);
      End(kExitRunFailed);
    } else {
      OnLost();
    }
  }

  void OnLost() {
    const std::string why = cause_ == v1::END_CAUSE_UNSPECIFIED
                                ? "the daemon is gone"
                                : Word(v1::EndCause_Name(cause_), "END_CAUSE_");
    fprintf(stderr, "warning: the lease is lost (%s); its flags have rolled back\n", why.c_str());
    if (arguments_.Get("--on-lost") != "stop") return;
    stopped_for_loss_ = true;
    child_.Signal(SIGTERM);
    kill_at_ = absl::Now() + kGrace;
  }

  void End(int code) { exit_code_ = code; }

  const Arguments& arguments_;
  Child child_;
  const int signals_;
  std::string socket_;
  std::unique_ptr<HeldLease> lease_;
  v1::EndCause cause_ = v1::END_CAUSE_UNSPECIFIED;
  absl::Time kill_at_ = absl::InfiniteFuture();
  bool stopped_for_loss_ = false;
  std::optional<int> exit_code_;
};

int RunLeased(const Arguments& arguments) {
  if (!arguments.Has("--set")) {
    PrintError(arguments, "nothing to lease: no --set FLAG=VALUE", "backendctl run --help");
    return kExitUsage;
  }
  sigset_t caught, before;
  sigemptyset(&caught);
  for (int signal : kSignals) sigaddset(&caught, signal);
  // Before gRPC starts its threads, which inherit the mask; the command gets the one of before.
  sigprocmask(SIG_BLOCK, &caught, &before);
  const int signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
  auto child = Child::Fork(arguments.All("CMD"), arguments.Has("--detach-child"), before);
  if (!child.ok()) {
    Fail(arguments, child.status());
    return kExitRunFailed;
  }
  signal(SIGPIPE, SIG_IGN);  // a command that is gone already is no reason to die
  return LeasedRun(arguments, *std::move(child), signals).Execute();
}

}  // namespace

std::vector<Command> RunCommands() {
  std::vector<Option> options = HoldOptions();
  options.insert(options.begin(), {"--set",
                                   "FLAG=VALUE",
                                   "a flag of the lease; may be repeated",
                                   Names::kAssignment,
                                   {},
                                   true});
  options.push_back(
      {"--on-lost", "WHAT", "when the lease is lost", Names::kNone, {"warn", "stop"}});
  options.push_back(
      {"--if-unavailable", "WHAT", "when no daemon serves", Names::kNone, {"fail", "run"}});
  options.push_back({"--detach-child", "", "let the command live on if backendctl is killed"});
  return {{"run",
           "Runs a command while a lease sets flags. Exits as the command does, 128 + n for a "
           "signal; 125 if the lease cannot be had.",
           {{"CMD", true, true, Names::kCommandLine}},
           options,
           {"backendctl run --set cudnn.benchmark=true -- ./train",
            "backendctl run --set mkldnn.matmul.fp32_precision=bf16 --device cpu --wait 30s -- "
            "./train"},
           RunLeased}};
}

}  // namespace backendd::cli
