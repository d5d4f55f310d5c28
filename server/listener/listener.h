// One Unix socket with gRPC services behind it; the daemon has one, each worker has one.
#ifndef BACKENDD_SERVER_LISTENER_LISTENER_H_
#define BACKENDD_SERVER_LISTENER_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shared/fd/fd.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace backendd {

class HealthService;

// Owned by the daemon or the worker. Accepts connections on a thread of its own, reads who
// connected (peer.h), and hands them to gRPC. Ends with Shutdown or its destructor.
class Listener {
 public:
  struct NamedService {
    std::string name;  // FlagService::service_full_name()
    grpc::Service* service;
  };
  struct Options {
    Fd socket;  // listening, SOCK_STREAM: from BindSocket (socket.h), or inherited
    // Callback services, which outlive the listener. Health and reflection are added.
    std::vector<NamedService> services;
    bool reflection = true;
    int max_message_bytes = 4 << 20;
    int64_t grpc_memory_bytes = int64_t{512} << 20;
    int max_connections_per_uid = 4096;
  };
  static absl::StatusOr<std::unique_ptr<Listener>> Create(Options options);
  ~Listener();

  // Accepts from now on; until then clients wait in the backlog. Health turns to SERVING.
  void Start();
  // What grpc.health.v1 answers, for "" and every service alike.
  void SetServing(bool serving);
  // Accepts no more, gives running calls `grace`, then cancels them. May be called again.
  void Shutdown(absl::Duration grace);

 private:
  explicit Listener(Options options);
  void AcceptLoop();
  bool AcceptOne();  // false: nobody is waiting

  Options options_;
  std::unique_ptr<HealthService> health_;
  std::unique_ptr<grpc::Service> reflection_v1_, reflection_v1alpha_;
  std::unique_ptr<grpc::Server> server_;
  Fd wake_;  // an eventfd: the accept thread ends
  std::thread thread_;
};

// Feeds gRPC's own log into ours, its errors only. Once, before the first server.
void RouteGrpcLog();

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_LISTENER_H_
