#include "backendd/v1/lease_service.grpc.pb.h"
#include "server/node/rpc/call.h"
#include "server/node/rpc/services.h"

namespace backendd::node {
namespace {

// A call that may stand in line, and leaves it when it is cancelled.
class AcquireCall final : public grpc::ServerUnaryReactor {
 public:
  AcquireCall(Node* node, const Caller& caller, const v1::AcquireLeaseRequest& request,
              v1::AcquireLeaseResponse* response)
      : node_(node), waiting_(node->AcquireLease(caller, request, Later(this, response))) {}
  void OnCancel() override {
    if (waiting_) node_->CancelWait(waiting_);
  }
  void OnDone() override { delete this; }

 private:
  Node* const node_;
  const LeaseId waiting_;
};

// The call is the session. It lives until gRPC is done with it and no answer is under way. It ends
// as STREAM_BROKEN where it is cancelled or past its deadline, as PROCESS_EXIT where its process is
// gone, as RELEASED or KICKED with its lease.
class HoldStream final : public grpc::ServerWriteReactor<v1::HoldLeaseResponse>,
                         public SessionSink {
 public:
  static HoldStream* Start(Node* node, const Caller& caller, const v1::HoldLeaseRequest& request) {
    auto owned = std::make_shared<HoldStream>(node);
    HoldStream* stream = owned.get();
    stream->self_ = owned;
    const auto id = node->HoldLease(
        caller, request, stream, [owned](int position) { owned->Queued(position); },
        [owned](absl::StatusOr<v1::AcquireLeaseResponse> granted) {
          owned->Granted(std::move(granted));
        });
    if (!id.ok()) {
      stream->outbox_.End(id.status());
    } else {
      MutexLock lock(&stream->mutex_);
      stream->session_ = *id;
    }
    stream->Leave();
    return stream;
  }
  explicit HoldStream(Node* node) : node_(node), outbox_(this) {}

  void Send(const v1::OpenSessionResponse& frame) override {
    if (!frame.has_lease_event() || frame.lease_event().has_lost()) return;
    v1::HoldLeaseResponse event;
    *event.mutable_lease_event() = frame.lease_event();
    outbox_.Push(std::move(event));
  }
  void End(v1::EndCause cause, const absl::Status& status) override {
    v1::HoldLeaseResponse event;
    event.mutable_ended()->set_cause(cause);
    outbox_.Push(std::move(event));
    outbox_.End(status);
  }
  void OnWriteDone(bool ok) override { outbox_.OnWriteDone(ok); }
  void OnCancel() override { Refuse(absl::CancelledError()); }
  void OnDone() override { auto last = std::move(self_); }

 private:
  void Queued(int position) {
    v1::HoldLeaseResponse event;
    event.mutable_queued()->set_position(position);
    outbox_.Push(std::move(event));
  }
  void Granted(absl::StatusOr<v1::AcquireLeaseResponse> granted) {
    if (!granted.ok()) return Refuse(granted.status());
    v1::HoldLeaseResponse event;
    event.mutable_granted()->mutable_lease()->Swap(granted->mutable_lease());
    event.mutable_granted()->mutable_changes()->Swap(granted->mutable_changes());
    outbox_.Push(std::move(event));
  }
  void Refuse(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      refused_ = status;
    }
    Leave();
  }
  // Once the session is known and it is to end.
  void Leave() {
    SessionId session;
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (!session_ || refused_.ok()) return;
      session = session_;
      status = refused_;
    }
    // A refusal is the answer, before the end of the session that it brings with it.
    outbox_.End(status);
    node_->StreamBroke(session, this, v1::END_CAUSE_STREAM_BROKEN);
  }

  Node* const node_;
  std::shared_ptr<HoldStream> self_;
  Outbox<HoldStream, v1::HoldLeaseResponse> outbox_;
  Mutex mutex_;
  SessionId session_ ABSL_GUARDED_BY(mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(mutex_);
};

class LeaseService final : public v1::LeaseService::CallbackService {
 public:
  explicit LeaseService(Node* node) : node_(node) {}

  grpc::ServerUnaryReactor* AcquireLease(grpc::CallbackServerContext* context,
                                         const v1::AcquireLeaseRequest* request,
                                         v1::AcquireLeaseResponse* response) override {
    const Caller caller = CallerOf(*node_, *context);
    if (request->has_wait()) return new AcquireCall(node_, caller, *request, response);
    // gRPC ends its own reactor without another thread.
    auto* reactor = context->DefaultReactor();
    node_->AcquireLease(caller, *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerWriteReactor<v1::HoldLeaseResponse>* HoldLease(
      grpc::CallbackServerContext* context, const v1::HoldLeaseRequest* request) override {
    return HoldStream::Start(node_, CallerOf(*node_, *context), *request);
  }
  grpc::ServerUnaryReactor* RenewLease(grpc::CallbackServerContext* context,
                                       const v1::RenewLeaseRequest* request,
                                       v1::RenewLeaseResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->RenewLease(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* UpdateLease(grpc::CallbackServerContext* context,
                                        const v1::UpdateLeaseRequest* request,
                                        v1::UpdateLeaseResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->UpdateLease(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* ReleaseLease(grpc::CallbackServerContext* context,
                                         const v1::ReleaseLeaseRequest* request,
                                         v1::ReleaseLeaseResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->ReleaseLease(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* GetLease(grpc::CallbackServerContext* context,
                                     const v1::GetLeaseRequest* request,
                                     v1::GetLeaseResponse* response) override {
    return Answer(context, node_->GetLease(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* ListLeases(grpc::CallbackServerContext* context,
                                       const v1::ListLeasesRequest* request,
                                       v1::ListLeasesResponse* response) override {
    return Answer(context, node_->ListLeases(CallerOf(*node_, *context), *request), response);
  }

 private:
  Node* const node_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewLeaseService(Node* node) {
  return std::make_unique<LeaseService>(node);
}

}  // namespace backendd::node
