// The floor: a gRPC server that answers GetNode with an empty message from a callback, and does
// nothing else. A process of its own, as the daemon is. Usage: bench_empty_server SOCKET.
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <string>

#include "backendd/v1/device_service.grpc.pb.h"

namespace {

class Empty final : public backendd::v1::DeviceService::CallbackService {
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const backendd::v1::GetNodeRequest* request,
                                    backendd::v1::GetNodeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  Empty service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(std::string("unix:") + argv[1], grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  int signal;
  sigwait(&ends, &signal);
  server->Shutdown();
}
