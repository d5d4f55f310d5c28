// The way to the daemon, and one call.
#ifndef BACKENDD_CLIENT_CLI_CONNECTION_H_
#define BACKENDD_CLIENT_CLI_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/command.h"
#include "google/protobuf/message.h"
#include "shared/status/grpc_status.h"

namespace backendd::cli {

// The sockets that are tried, in this order: --address or BACKENDD_ADDRESS alone, else
// $XDG_RUNTIME_DIR/backendd/backendd.sock and /run/backendd/backendd.sock.
std::vector<std::string> Addresses(const Arguments& arguments);

// A channel to the first daemon that answers. Owned by a command's function; one thread, but for
// streams that its caller reads elsewhere.
class Connection {
 public:
  // Errors: DAEMON_UNREACHABLE, with each socket and its errno.
  static absl::StatusOr<Connection> Open(const Arguments& arguments);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& socket() const { return socket_; }

  // One unary call with a deadline; whatever the daemon answers, with its details.
  template <class Service, class Stub, class Request, class Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response,
                    absl::Duration deadline = absl::Seconds(10)) const {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    Show(request);
    typename Service::Stub stub(channel_);
    return FromGrpc((stub.*method)(&context, request, response));
  }

  // With -v=6: the equal grpcurl line on stderr.
  void Show(const google::protobuf::Message& request) const;

 private:
  Connection(std::string socket, std::shared_ptr<grpc::Channel> channel, bool verbose)
      : socket_(std::move(socket)), channel_(std::move(channel)), verbose_(verbose) {}

  std::string socket_;
  std::shared_ptr<grpc::Channel> channel_;
  bool verbose_;
};

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_CONNECTION_H_
