#include "backendd/v1/flag_service.grpc.pb.h"
#include "server/node/rpc/call.h"
#include "server/node/rpc/services.h"

namespace backendd::node {
namespace {

constexpr size_t kMostBehind = 9000;  // a whole history and what comes meanwhile

class WatchStream final : public grpc::ServerWriteReactor<v1::WatchFlagsResponse>,
                          public WatchSink {
 public:
  WatchStream(Node* node, const Caller& caller, const v1::WatchFlagsRequest& request)
      : node_(node), outbox_(this) {
    watch_ = node_->WatchFlags(caller, request, this);
  }
  bool Send(const v1::WatchFlagsResponse& message) override {
    return outbox_.Push(message, kMostBehind);
  }
  void End(const absl::Status& status) override { outbox_.End(status); }
  void OnWriteDone(bool ok) override { outbox_.OnWriteDone(ok); }
  void OnCancel() override {
    node_->StopWatch(watch_);
    outbox_.End(absl::CancelledError());
  }
  void OnDone() override { delete this; }

 private:
  Node* const node_;
  Outbox<WatchStream, v1::WatchFlagsResponse> outbox_;
  uint64_t watch_ = 0;
};

class FlagService final : public v1::FlagService::CallbackService {
 public:
  explicit FlagService(Node* node) : node_(node) {}

  grpc::ServerUnaryReactor* GetFlag(grpc::CallbackServerContext* context,
                                    const v1::GetFlagRequest* request,
                                    v1::GetFlagResponse* response) override {
    return Answer(context, node_->GetFlag(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* ListFlags(grpc::CallbackServerContext* context,
                                      const v1::ListFlagsRequest* request,
                                      v1::ListFlagsResponse* response) override {
    return Answer(context, node_->ListFlags(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* DescribeFlag(grpc::CallbackServerContext* context,
                                         const v1::DescribeFlagRequest* request,
                                         v1::DescribeFlagResponse* response) override {
    return Answer(context, node_->DescribeFlag(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* ExplainFlag(grpc::CallbackServerContext* context,
                                        const v1::ExplainFlagRequest* request,
                                        v1::ExplainFlagResponse* response) override {
    return Answer(context, node_->ExplainFlag(CallerOf(*node_, *context), *request), response);
  }
  grpc::ServerUnaryReactor* SetFlags(grpc::CallbackServerContext* context,
                                     const v1::SetFlagsRequest* request,
                                     v1::SetFlagsResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->SetFlags(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* UnsetFlags(grpc::CallbackServerContext* context,
                                       const v1::UnsetFlagsRequest* request,
                                       v1::UnsetFlagsResponse* response) override {
    auto* reactor = context->DefaultReactor();
    node_->UnsetFlags(CallerOf(*node_, *context), *request, Later(reactor, response));
    return reactor;
  }
  grpc::ServerWriteReactor<v1::WatchFlagsResponse>* WatchFlags(
      grpc::CallbackServerContext* context, const v1::WatchFlagsRequest* request) override {
    return new WatchStream(node_, CallerOf(*node_, *context), *request);
  }

 private:
  Node* const node_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewFlagService(Node* node) {
  return std::make_unique<FlagService>(node);
}

}  // namespace backendd::node
