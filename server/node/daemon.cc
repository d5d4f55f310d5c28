#include "server/node/daemon.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/control/worker_start.h"
#include "server/listener/socket.h"
#include "server/node/flags/environment.h"
#include "server/node/rpc/services.h"
#include "server/node/workers/cpu_kernels.h"
#include "shared/status/macros.h"

namespace backendd::node {
namespace {

NodeQuotas QuotasOf(const Config& config) {
  NodeQuotas quotas;
  quotas.sessions = static_cast<int>(config.sessions);
  quotas.sessions_per_user = static_cast<int>(config.sessions_per_user);
  quotas.leases = static_cast<int>(config.leases);
  quotas.leases_per_session = static_cast<int>(config.leases_per_session);
  quotas.entries_per_lease = static_cast<int>(config.entries_per_lease);
  quotas.waiters_per_key = static_cast<int>(config.waiters_per_key);
  quotas.watches_per_session = static_cast<int>(config.watches_per_session);
  quotas.mutations_per_second = static_cast<int>(config.mutations_per_second);
  quotas.mutation_burst = static_cast<int>(config.mutation_burst);
  return quotas;
}

Node::Options NodeOptions(const Config& config, std::optional<gid_t> group) {
  const Variables variables = OwnEnvironment();
  Node::Options options;
  options.version = BACKENDD_VERSION;
  options.socket = config.socket;
  options.facts.cpu_capability = CapabilityOf(DetectCpu());
  Environment environment = ParseEnvironment(variables, options.facts);
  for (const std::string& warning : environment.warnings) LogWarning(warning);
  options.environment = std::move(environment.entries);
  options.file = config.flags;
  options.roles = config.roles;
  if (group.has_value())  // unless the configuration says otherwise of it
    options.roles.rules.push_back({std::nullopt, group, Role::kWorker});
  options.quotas = QuotasOf(config);
  options.notes = {"cpu only (no CUDA worker is built)"};
  return options;
}

// The daemon takes what it gets: a sandbox may cap it.
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// In --worker-dir; else beside the daemon, or where an installation puts it.
std::string WorkerBinary(const Config& config, const std::string& executable_dir) {
  constexpr char kName[] = "/backendd-worker-cpu";
  if (!config.worker_dir.empty()) return config.worker_dir + kName;
  const std::string installed = executable_dir + "/../libexec/backendd" + kName;
  const std::string beside = executable_dir + kName;
  return access(beside.c_str(), X_OK) != 0 && access(installed.c_str(), X_OK) == 0 ? installed
                                                                                   : beside;
}

}  // namespace

Daemon::Daemon(const Config& config) : config_(config) {}

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

  WorkerSupervisor::Options workers;
  workers.devices = {{"cpu", WorkerBinary(config, executable_dir), directory + "/cpu.sock",
                      directory + "/cpu.fd.sock"}};
  if (config.require_device == "cuda")
    return absl::FailedPreconditionError(
        "cpu only (no CUDA worker is built), and cuda is required");
  if (config.require_device == "cpu" && access(workers.devices[0].binary.c_str(), X_OK) != 0)
    return absl::FailedPreconditionError(
        absl::StrCat("cpu is required, and there is no worker '", workers.devices[0].binary, "'"));
  workers.group = group;
  workers.variables = WorkerEnvironment(OwnEnvironment(), DetectCpu());
  workers.variables[kLogLevelVariable] = LogLevelName(config.log_level);
  workers.variables[kReflectionVariable] = config.reflection ? "1" : "0";
  workers.clock = &daemon->clock_;
  ASSIGN_OR_RETURN(daemon->workers_, WorkerSupervisor::Create(std::move(workers)));
  ASSIGN_OR_RETURN(daemon->node_, Node::Create(NodeOptions(config, group), daemon->workers_.get()));

  Listener::Options options;
  ASSIGN_OR_RETURN(options.socket, BindSocket(config.socket, SOCK_STREAM, group));
  daemon->services_ = std::make_unique<Services>(daemon->node_.get());
  options.services = daemon->services_->named();
  options.reflection = config.reflection;
  options.max_message_bytes = static_cast<int>(config.max_message_bytes);
  options.max_connections_per_uid = static_cast<int>(config.connections_per_user);
  ASSIGN_OR_RETURN(daemon->listener_, Listener::Create(std::move(options)));
  daemon->workers_->Start(daemon->node_.get());
  daemon->listener_->Start();
  LogInfo("backendd serves", {{"socket", config.socket}, {"pid", getpid()}});
  return daemon;
}

Daemon::~Daemon() { Stop(); }

bool Daemon::HasSessions() const {
  Peer self;
  self.uid = geteuid();
  self.pid = getpid();
  const auto sessions = node_->ListSessions(
      {std::make_shared<const Peer>(std::move(self)), Role::kAdmin}, v1::ListSessionsRequest());
  return sessions.ok() && sessions->sessions_size() > 0;
}

void Daemon::Drain(const std::function<bool(absl::Duration)>& hurry) {
  LogInfo("draining", {{"timeout", absl::FormatDuration(config_.drain_timeout)}});
  listener_->SetServing(false);
  node_->Drain(config_.drain_timeout);
  const absl::Duration until = clock_.Steady() + config_.drain_timeout;
  while (HasSessions() && clock_.Steady() < until) {
    if (hurry(std::min(absl::Milliseconds(50), until - clock_.Steady()))) break;
  }
  node_->EndAll(v1::END_CAUSE_DRAINED);
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
