#include "server/node/daemon.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/control/worker_start.h"
#include "server/listener/socket.h"
#include "server/node/workers/cpu_kernels.h"
#include "shared/status/macros.h"

namespace backendd::node {
namespace {

// The daemon takes what it gets: a sandbox may cap it.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

// Feeds workers until the node does.
class Daemon::Feeder final : public Workers::Observer {
 public:
  explicit Feeder(Workers* workers) : workers_(workers) {}
  void OnWorkerReady(const v1::Device& device) override {
    control::v1::Command command;
    command.mutable_snapshot()->set_complete(true);
    command.mutable_snapshot()->set_revision(1);
    workers_->Attach(device.device(), std::move(command));
  }
  void OnDeviceChanged(const v1::Device&, uint64_t) override {}
  void OnSessionFreed(const DeviceId&, uint64_t, uint64_t) override {}

 private:
  Workers* workers_;
};

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const Config& config,
                                                       const std::string& executable_dir) {
  auto daemon = std::unique_ptr<Daemon>(new Daemon(config));
  RaiseFileLimit();
  RouteGrpcLog();
  const std::string directory = config.socket.substr(0, config.socket.rfind('/'));
  if (!directory.empty()) mkdir(directory.c_str(), 0755);  // a missing parent is told by the lock
  ASSIGN_OR_RETURN(daemon->lock_, LockSocket(config.socket));
  const std::optional<gid_t> group = GroupByName("backendd");
  if (!group.has_value())
    LogInfo("no group 'backendd' on this node: the sockets keep the daemon's own group");

  const std::string worker_dir = config.worker_dir.empty() ? executable_dir : config.worker_dir;
  WorkerSupervisor::Options workers;
  workers.devices = {{"cpu", worker_dir + "/backendd-worker-cpu", directory + "/cpu.sock",
                      directory + "/cpu.fd.sock"}};
  if (config.require_device == "cuda")
    return absl::FailedPreconditionError("cpu only (no CUDA worker is built), and cuda is required");
  if (config.require_device == "cpu" && access(workers.devices[0].binary.c_str(), X_OK) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat("cpu is required, and there is no worker '", workers.devices[0].binary, "'"));
  workers.group = group;
  workers.variables = WorkerEnvironment(OwnEnvironment(), DetectCpu());
  workers.variables[kReflectionVariable] = config.reflection ? "1" : "0";
  workers.clock = &daemon->clock_;
  ASSIGN_OR_RETURN(daemon->workers_, WorkerSupervisor::Create(std::move(workers)));
  daemon->feeder_ = std::make_unique<Feeder>(daemon->workers_.get());

  Listener::Options options;
  ASSIGN_OR_RETURN(options.socket, BindSocket(config.socket, SOCK_STREAM, group));
  options.reflection = config.reflection;
  options.max_message_bytes = static_cast<int>(config.max_message_bytes);
  options.max_connections_per_uid = static_cast<int>(config.connections_per_user);
  ASSIGN_OR_RETURN(daemon->listener_, Listener::Create(std::move(options)));
  daemon->workers_->Start(daemon->feeder_.get());
  daemon->listener_->Start();
  LogInfo("backendd serves", {{"socket", config.socket}, {"pid", getpid()}});
  return daemon;
}

Daemon::Daemon(const Config& config) : config_(config) {}

Daemon::~Daemon() { Stop(); }

void Daemon::Drain(const std::function<bool(absl::Duration)>& hurry) {
  listener_->SetServing(false);
  LogInfo("draining", {{"timeout", absl::FormatDuration(config_.drain_timeout)}});
}

void Daemon::Stop() {
  if (!lock_) return;
  if (listener_ != nullptr) listener_->Shutdown(absl::Milliseconds(500));
  if (workers_ != nullptr) {
    workers_->Stop(absl::Seconds(2));
    workers_->RemoveSockets();
  }
  if (listener_ != nullptr) {
    unlink(config_.socket.c_str());
    LogInfo("backendd ended");
  }
  lock_.reset();  // its file stays: removing it would let two daemons lock two files
}

}  // namespace backendd::node
