// One unary call with a deadline; what the daemon answers, with its details.
#ifndef BACKENDD_CLIENT_BACKENDD_CALL_H_
#define BACKENDD_CLIENT_BACKENDD_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "backendd/client.h"
#include "shared/status/grpc_status.h"

namespace backendd {

// A channel to a Unix socket that tries again within 5 s and shares no back-off with others.
std::shared_ptr<grpc::Channel> UnixChannel(const std::string& path);
// Where gRPC answered for the peer: DAEMON_UNREACHABLE naming it, or DEADLINE_EXCEEDED.
absl::Status WithReason(absl::Status status, const std::string& peer);

// Call<v1::FlagService>(client, &v1::FlagService::Stub::GetFlag, request, &response)
template <class Service, class Stub, class Request, class Response>
absl::Status Call(const Client& client,
                  grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response* response) {
  if (absl::Status forked = client.CheckProcess(); !forked.ok()) return forked;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + client.deadline()));
  typename Service::Stub stub(client.channel());
  return WithReason(FromGrpc((stub.*method)(&context, request, response)), client.address());
}

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_CALL_H_
