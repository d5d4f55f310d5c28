// The way to the daemon, and one call.
#ifndef BACKENDD_CLIENT_CLI_CONNECTION_H_
#define BACKENDD_CLIENT_CLI_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backendd/call.h"
#include "backendd/client.h"
#include "client/cli/command.h"
#include "google/protobuf/message.h"
#include "shared/status/grpc_status.h"

namespace backendd::cli {

// The SDK's client at --address, with what -v=6 wants to see. Owned by a command's function; one
// thread, but for streams that its caller reads elsewhere.
class Connection {
 public:
  // Errors: DAEMON_UNREACHABLE, with each socket that was tried and its errno.
  static absl::StatusOr<Connection> Open(const Arguments& arguments,
                                         absl::Duration deadline = absl::Seconds(10));

  Client& client() const { return *client_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return client_->channel(); }
  const std::string& socket() const { return client_->address(); }

  // One unary call; whatever the daemon answers, with its details.
  template <class Service, class Stub, class Request, class Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) const {
    Show(request);
    return backendd::Call<Service>(*client_, method, request, response);
  }

  // With -v=6: the equal grpcurl line on stderr.
  void Show(const google::protobuf::Message& request) const;

 private:
  Connection(std::unique_ptr<Client> client, bool verbose)
      : client_(std::move(client)), verbose_(verbose) {}

  std::unique_ptr<Client> client_;
  bool verbose_;
};

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_CONNECTION_H_
