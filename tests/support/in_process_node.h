// A Node with its services on a real Unix socket, and a worker whose acknowledgements a test may
// hold back.
#ifndef BACKENDD_TESTS_SUPPORT_IN_PROCESS_NODE_H_
#define BACKENDD_TESTS_SUPPORT_IN_PROCESS_NODE_H_

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/listener/listener.h"
#include "server/listener/socket.h"
#include "server/node/node.h"
#include "server/node/rpc/services.h"
#include "shared/status/grpc_status.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace backendd::node {

class HeldWorkers final : public Workers {
 public:
  void Send(absl::FunctionRef<control::v1::Command(const DeviceId&)> make,
            std::function<void()> acknowledged) override {
    bool held;
    {
      MutexLock lock(&mutex_);
      sent_.push_back(make("cpu"));
      held = hold_;
      if (held) waiting_.push_back(acknowledged);
    }
    if (!held) acknowledged();
  }
  void Attach(const DeviceId&, control::v1::Command complete) override {
    MutexLock lock(&mutex_);
    sent_.push_back(std::move(complete));
  }
  std::vector<v1::Device> Devices() const override {
    v1::Device cpu;
    cpu.set_device("cpu");
    cpu.set_state(v1::DEVICE_STATE_SERVING);
    cpu.set_epoch(1);
    return {cpu};
  }
  std::map<DeviceId, uint64_t> SessionBytes(uint64_t) const override { return {}; }

  void Hold() {
    MutexLock lock(&mutex_);
    hold_ = true;
  }
  void Release() {
    std::vector<std::function<void()>> waiting;
    {
      MutexLock lock(&mutex_);
      hold_ = false;
      waiting.swap(waiting_);
    }
    for (const auto& acknowledge : waiting) acknowledge();
  }
  std::vector<control::v1::Command> sent() const {
    MutexLock lock(&mutex_);
    return sent_;
  }

 private:
  mutable Mutex mutex_;
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<control::v1::Command> sent_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
};

class InProcessNode {
 public:
  InProcessNode() {
    char name[] = "/tmp/bdXXXXXX";
    directory_ = mkdtemp(name);
    socket_ = directory_ + "/s";
    Node::Options options;
    options.clock = &clock;
    options.timer = false;
    options.version = "test";
    node = std::move(Node::Create(std::move(options), &workers)).value();
    services_ = std::make_unique<Services>(node.get());
    Listener::Options listen;
    listen.socket = std::move(BindSocket(socket_, SOCK_STREAM, std::nullopt)).value();
    listen.services = services_->named();
    listener_ = std::move(Listener::Create(std::move(listen))).value();
    listener_->Start();
    channel = Channel();
  }
  ~InProcessNode() {
    workers.Release();
    node->EndAll(v1::END_CAUSE_DRAINED);
    listener_->Shutdown(absl::Milliseconds(100));
    listener_.reset();
    unlink(socket_.c_str());
    rmdir(directory_.c_str());
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel("unix:" + socket_, grpc::InsecureChannelCredentials());
  }

  FakeClock clock;
  HeldWorkers workers;
  std::unique_ptr<Node> node;
  std::shared_ptr<grpc::Channel> channel;

 private:
  std::string directory_, socket_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Listener> listener_;
};

// One unary call.
template <class Stub, class Request, class Response>
absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  Response response;
  const grpc::Status status = ((*stub).*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace backendd::node

#endif  // BACKENDD_TESTS_SUPPORT_IN_PROCESS_NODE_H_
