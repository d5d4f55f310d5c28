// The daemon's gRPC services over one Node.
#ifndef BACKENDD_SERVER_NODE_RPC_SERVICES_H_
#define BACKENDD_SERVER_NODE_RPC_SERVICES_H_

#include <memory>
#include <vector>

#include "server/listener/listener.h"
#include "server/node/node.h"

namespace backendd::node {

// Owned by the daemon; outlives the listener that serves it, as the node outlives it. Threads are
// gRPC's; no method blocks.
class Services {
 public:
  explicit Services(Node* node);
  ~Services();
  std::vector<Listener::NamedService> named() const;

 private:
  std::vector<Listener::NamedService> named_;
  std::vector<std::unique_ptr<grpc::Service>> owned_;
};

// One of each, made by its own file.
std::unique_ptr<grpc::Service> NewFlagService(Node* node);
std::unique_ptr<grpc::Service> NewLeaseService(Node* node);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_RPC_SERVICES_H_
