// grpc.health.v1 by our own hands: the library's service is listed but not described.
#ifndef BACKENDD_SERVER_LISTENER_HEALTH_H_
#define BACKENDD_SERVER_LISTENER_HEALTH_H_

#include <set>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "shared/sync.h"

namespace backendd {

// Owned by the Listener, as long as its server. Called by gRPC's threads and by who sets the state.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Answers for these names and for "".
  explicit HealthService(std::set<std::string> names);
  void SetServing(bool serving);

 private:
  class Watcher;
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;
  void Forget(Watcher* watcher);

  const std::set<std::string> names_;
  Mutex mutex_;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Watcher*> watchers_ ABSL_GUARDED_BY(mutex_);  // each ends in its OnDone
};

}  // namespace backendd

#endif  // BACKENDD_SERVER_LISTENER_HEALTH_H_
