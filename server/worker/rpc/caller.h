// Who makes a call: the grant in its metadata, the peer of its connection, its deadline.
#ifndef BACKENDD_SERVER_WORKER_RPC_CALLER_H_
#define BACKENDD_SERVER_WORKER_RPC_CALLER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backendd/v1/compute_service.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/worker/session/session.h"
#include "shared/clock.h"

namespace backendd::worker {

// The 16 bytes of the metadata `backendd-grant`; empty where there are none.
std::string GrantToken(const grpc::CallbackServerContext& context);
Caller CallerOf(const grpc::CallbackServerContext& context);

// Errors: SESSION_UNKNOWN.
absl::StatusOr<std::shared_ptr<Session>> SessionOf(const SessionTable& sessions,
                                                   const grpc::CallbackServerContext& context,
                                                   uint64_t session_id);

// The earlier of gRPC's deadline and the request's own, as steady time; infinite: none. Errors:
// ARGUMENT_INVALID (a negative or malformed duration).
absl::StatusOr<absl::Duration> DeadlineOf(const grpc::CallbackServerContext& context,
                                          const v1::SubmitRequest& request, const Clock& clock);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_RPC_CALLER_H_
