#include "server/worker/worker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "server/control/worker_start.h"
#include "server/worker/program/reply.h"
#include "shared/log/log.h"
#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

constexpr uint64_t kMaxWorkspaceBytes = 1 << 30;
constexpr absl::Duration kDrainGrace = absl::Seconds(10);
constexpr char kFftLimitFlag[] = "cuda.cufft_plan_cache.max_size";

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(Options options,
                                                       std::unique_ptr<Device> device,
                                                       const Clock& clock) {
  std::unique_ptr<Worker> worker(new Worker(std::move(options), std::move(device), clock));
  RETURN_IF_ERROR(worker->Init());
  return worker;
}

Worker::Worker(Options options, std::unique_ptr<Device> device, const Clock& clock)
    : options_(std::move(options)),
      device_(std::move(device)),
      plans_({}, clock),
      memory_(*device_, plans_, {device_->info().memory_bytes, device_->info().memory_bytes / 4}),
      sessions_(memory_, {[this](std::function<void()> task) { admission_->Post(std::move(task)); },
                          [this](Session& session) { admission_->Drop(session); },
                          [this](SessionId session, uint64_t bytes) {
                            control::v1::Report report;
                            report.mutable_freed()->set_session_id(session.value());
                            report.mutable_freed()->set_bytes(bytes);
                            Report(report);
                          }}),
      shop_{*device_,
            plans_,
            flags_,
            sessions_,
            clock,
            options_.device_epoch,
            std::min(kMaxWorkspaceBytes, device_->info().memory_bytes / 32)},
      link_(std::move(options_.control)) {}

absl::Status Worker::Init() {
  ASSIGN_OR_RETURN(executor_, Executor::Create(*device_, memory_, options_.executor));
  admission_ = std::make_unique<Admission>(shop_, *executor_);
  service_ = std::make_unique<ComputeService>(shop_, memory_, *admission_, *executor_);
  ASSIGN_OR_RETURN(fd_server_, FdServer::Create(std::move(options_.fd_listener), sessions_));
  Listener::Options listener;
  listener.socket = std::move(options_.listener);
  listener.services = {{v1::ComputeService::service_full_name(), service_.get()}};
  listener.reflection = options_.reflection;
  ASSIGN_OR_RETURN(listener_, Listener::Create(std::move(listener)));
  return absl::OkStatus();
}

Worker::~Worker() {
  if (listener_ != nullptr) listener_->Shutdown(absl::ZeroDuration());
  if (fd_server_ != nullptr) fd_server_->Stop();
  if (admission_ != nullptr) admission_->Stop();
  if (executor_ != nullptr) executor_->Stop();
}

absl::Status Worker::Run() {
  control::v1::Report hello;
  hello.mutable_hello()->set_abi(ControlAbi());
  FillDevice(device_->info(), options_.device_epoch, hello.mutable_hello()->mutable_device());
  RETURN_IF_ERROR(link_.Send(hello));
  const absl::Status ended = link_.Run([this](absl::string_view bytes) {
    control::v1::Command command;
    if (command.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      Apply(command);
    } else {
      link_.Close();  // not our daemon's words
    }
  });
  return drained_ ? absl::OkStatus() : ended;
}

void Worker::Report(const control::v1::Report& report) {
  link_.Send(report).IgnoreError();  // a link that ended ends Run
}

void Worker::Apply(const control::v1::Command& command) {
  if (command.has_snapshot()) {
    flags_.Commit(command.snapshot());
    const FlagValue limit = flags_.Value(FlagIdOf(kFftLimitFlag));
    if (const auto* plans = std::get_if<int64_t>(&limit); plans != nullptr && *plans >= 0)
      plans_.SetLimit(PlanKind::kFft, static_cast<uint64_t>(*plans));
    admission_->RevisionChanged();
  }
  for (const control::v1::Grant& grant : command.grants()) sessions_.Grant(grant);
  for (const control::v1::SessionEnd& end : command.ends()) {
    sessions_.End(SessionId(end.session_id()));
    flags_.Forget(SessionId(end.session_id()));
  }
  if (!command.ends().empty()) fd_server_->SessionsEnded();

  control::v1::Report acknowledged;
  acknowledged.set_acknowledged(command.sequence());
  Report(acknowledged);
  if (!serving_) {
    serving_ = true;
    fd_server_->Start();
    listener_->Start();
    LogInfo("the worker serves", {{"device", device_->info().uuid},
                                  {"epoch", options_.device_epoch},
                                  {"revision", flags_.revision()}});
  }
  if (command.ping()) {
    control::v1::Report report;
    *report.mutable_status() = Status();
    Report(report);
  }
  if (command.drain() && !drained_) {
    drained_ = true;
    // Shutdown waits for running calls, and this thread must not.
    admission_->Post([this] {
      listener_->Shutdown(kDrainGrace);
      link_.Close();
    });
  }
}

control::v1::Status Worker::Status() const {
  control::v1::Status status;
  status.set_used_bytes(memory_.Used(MemoryUse::kBuffer) + memory_.Used(MemoryUse::kArena));
  for (const auto& [session, bytes] : sessions_.Bytes())
    (*status.mutable_session_bytes())[session.value()] = bytes;
  status.set_revision(flags_.revision());
  status.set_fft_plans(plans_.Describe(PlanKind::kFft).size);
  status.set_programs(shop_.succeeded + shop_.failed);
  status.set_oldest_running_revision(executor_->oldest_revision());
  return status;
}

}  // namespace backendd::worker
