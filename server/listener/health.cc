#include "server/listener/health.h"

#include <optional>
#include <utility>

namespace backendd {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch call: sends each state once, the newest only where the client is slow. Deletes itself.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService* service, bool known) : service_(service), known_(known) {}

  bool known() const { return known_; }
  void Push(HealthCheckResponse::ServingStatus status) {
    MutexLock lock(&mutex_);
    wanted_ = status;
    WriteLocked();
  }

 private:
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok || cancelled_) {
      FinishLocked();
    } else {
      WriteLocked();
    }
  }
  void OnCancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (!writing_) FinishLocked();
  }
  void OnDone() override {
    service_->Forget(this);
    delete this;
  }
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_ || !wanted_ || wanted_ == sent_) return;
    sent_ = wanted_;
    response_.set_status(*sent_);
    writing_ = true;
    StartWrite(&response_);
  }
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(finished_, true)) Finish(grpc::Status::CANCELLED);
  }

  HealthService* const service_;
  const bool known_;
  Mutex mutex_;
  HealthCheckResponse response_;
  std::optional<HealthCheckResponse::ServingStatus> wanted_ ABSL_GUARDED_BY(mutex_);
  std::optional<HealthCheckResponse::ServingStatus> sent_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {
HealthCheckResponse::ServingStatus StatusFor(bool known, bool serving) {
  if (!known) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}
}  // namespace

HealthService::HealthService(std::set<std::string> names)
    : names_([&] {
        names.insert("");
        return std::move(names);
      }()) {}

void HealthService::SetServing(bool serving) {
  MutexLock lock(&mutex_);
  serving_ = serving;
  for (Watcher* watcher : watchers_) watcher->Push(StatusFor(watcher->known(), serving));
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(&mutex_);
  if (names_.count(request->service()) == 0) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "no service of that name"});
  } else {
    response->set_status(StatusFor(true, serving_));
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  auto* watcher = new Watcher(this, names_.count(request->service()) != 0);
  MutexLock lock(&mutex_);
  watchers_.insert(watcher);
  watcher->Push(StatusFor(watcher->known(), serving_));
  return watcher;
}

void HealthService::Forget(Watcher* watcher) {
  MutexLock lock(&mutex_);
  watchers_.erase(watcher);
}

}  // namespace backendd
