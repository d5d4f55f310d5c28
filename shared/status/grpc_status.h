// absl::Status <-> grpc::Status; the details survive both ways.
#ifndef BACKENDD_SHARED_STATUS_GRPC_STATUS_H_
#define BACKENDD_SHARED_STATUS_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace backendd {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace backendd

#endif  // BACKENDD_SHARED_STATUS_GRPC_STATUS_H_
