#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "server/node/rpc/call.h"
#include "server/node/rpc/services.h"
#include "shared/status/error.h"

namespace backendd::node {
namespace {

// One read is always under way, so a broken stream shows as a failed read. The node has forgotten
// the stream before it finishes.
class SessionStream final
    : public grpc::ServerBidiReactor<v1::OpenSessionRequest, v1::OpenSessionResponse>,
      public SessionSink {
 public:
  SessionStream(Node* node, Caller caller)
      : node_(node), caller_(std::move(caller)), outbox_(this) {
    StartRead(&frame_);
  }
  void Send(const v1::OpenSessionResponse& frame) override { outbox_.Push(frame); }
  void End(v1::EndCause, const absl::Status& status) override { outbox_.End(status); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      if (session_) node_->StreamBroke(session_, this, v1::END_CAUSE_STREAM_BROKEN);
      outbox_.End(absl::OkStatus());
      return;
    }
    if (session_) {
      node_->Frame(session_, this, frame_);
    } else {
      const auto session = frame_.has_hello() ? node_->OpenSession(caller_, frame_.hello(), this)
                                              : Error(Reason::kFrameInvalid,
                                                      "the first frame of a session is a hello");
      if (!session.ok()) return outbox_.End(session.status());
      session_ = *session;
    }
    outbox_.IfOpen([this] { StartRead(&frame_); });
  }
  void OnWriteDone(bool ok) override { outbox_.OnWriteDone(ok); }
  void OnDone() override { delete this; }

 private:
  Node* const node_;
  const Caller caller_;
  Outbox<SessionStream, v1::OpenSessionResponse> outbox_;
  v1::OpenSessionRequest frame_;
  SessionId session_;  // of the reading side only
};

class SessionService final : public v1::SessionService::CallbackService {
 public:
  explicit SessionService(Node* node) : node_(node) {}

  grpc::ServerBidiReactor<v1::OpenSessionRequest, v1::OpenSessionResponse>* OpenSession(
      grpc::CallbackServerContext* context) override {
    return new SessionStream(node_, CallerOf(*node_, *context));
  }
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request,
                                       v1::GetSessionResponse* response) override {
    return Answer(context, node_->GetSession(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override {
    return Answer(context, node_->ListSessions(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* KickSession(grpc::CallbackServerContext* context,
                                        const v1::KickSessionRequest* request,
                                        v1::KickSessionResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->KickSession(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }

 private:
  Node* const node_;
};

class DeviceService final : public v1::DeviceService::CallbackService {
 public:
  explicit DeviceService(Node* node) : node_(node) {}

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    return Answer(context, node_->ListDevices(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request,
                                    v1::GetNodeResponse* response) override {
    return Answer(context, node_->GetNode(CallerOf(*node_, *context), *request), response);
  }

 private:
  Node* const node_;
};

}  // namespace

Services::Services(Node* node) {
  const auto add = [this](const char* name, std::unique_ptr<grpc::Service> service) {
    named_.push_back({name, service.get()});
    owned_.push_back(std::move(service));
  };
  add(v1::SessionService::service_full_name(), std::make_unique<SessionService>(node));
  add(v1::LeaseService::service_full_name(), NewLeaseService(node));
  add(v1::FlagService::service_full_name(), NewFlagService(node));
  add(v1::DeviceService::service_full_name(), std::make_unique<DeviceService>(node));
}
Services::~Services() = default;
std::vector<Listener::NamedService> Services::named() const { return named_; }

}  // namespace backendd::node
