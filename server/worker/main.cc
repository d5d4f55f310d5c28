// backendd-worker-cpu: started by backendd, with its descriptors; of no use by hand.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "server/control/worker_start.h"
#include "server/worker/device/cpu/cpu_device.h"
#include "server/worker/worker.h"
#include "shared/log/log.h"

namespace {

constexpr int kUsage = 2, kDaemonGone = 3, kNoDevice = 4, kDeviceLost = 75;

absl::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

}  // namespace

int main(int argc, char**) {
  using namespace backendd;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int64_t daemon = 0, epoch = 0;
  if (argc > 1 || !absl::SimpleAtoi(Variable(kDaemonPidVariable), &daemon) ||
      !absl::SimpleAtoi(Variable(kDeviceEpochVariable), &epoch) || epoch < 1) {
    std::fprintf(stderr, "backendd starts this program itself, once per device\n");
    return kUsage;
  }
  // It may have died before the signal was asked for.
  if (getppid() != daemon) return kDaemonGone;
  signal(SIGPIPE, SIG_IGN);
  // The daemon drains its workers; a terminal's or a service manager's signal to all is its own.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  LogLevel level = LogLevel::kInfo;
  LogLevelFromName(Variable(kLogLevelVariable), &level);
  SetUpLog(level);
  RouteGrpcLog();

  auto device = worker::CreateCpuDevice({});
  if (!device.ok()) {
    LogError("the device cannot be opened", {{"error", device.status()}});
    return kNoDevice;
  }
  static const SystemClock clock;
  worker::Worker::Options options;
  options.control = Fd(kControlFd);
  options.listener = Fd(kListenerFd);
  options.fd_listener = Fd(kFdListenerFd);
  options.device_epoch = static_cast<uint64_t>(epoch);
  options.reflection = Variable(kReflectionVariable) != "0";
  options.executor.lost = [](const absl::Status& why) {
    LogError("the device is lost", {{"error", why}});
    _exit(kDeviceLost);  // a sticky error ends with the process
  };
  auto made = worker::Worker::Create(std::move(options), *std::move(device), clock);
  if (!made.ok()) {
    LogError("the worker cannot start", {{"error", made.status()}});
    return kNoDevice;
  }
  const absl::Status ended = (*made)->Run();
  LogInfo("the worker ends", {{"why", ended.ok() ? absl::Status(absl::OkStatus()) : ended}});
  // What runs may take long, and the daemon, if it is there, waits: threads end with the process.
  _exit(ended.ok() ? 0 : kDaemonGone);
}
