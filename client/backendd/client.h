// The way to the daemon of this node: where it listens, and one call with a deadline for each thing
// to ask.
#ifndef BACKENDD_CLIENT_BACKENDD_CLIENT_H_
#define BACKENDD_CLIENT_BACKENDD_CLIENT_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backendd/session.h"
#include "backendd/v1/device_service.pb.h"
#include "backendd/v1/flag_service.pb.h"
#include "backendd/v1/session_service.pb.h"

namespace grpc {
class Channel;
}

namespace backendd {

struct ClientOptions {
  // A socket's path, with or without `unix:`. Empty: BACKENDD_ADDRESS, else
  // $XDG_RUNTIME_DIR/backendd/backendd.sock, then /run/backendd/backendd.sock.
  std::string address;
  absl::Duration deadline = absl::Seconds(10);  // of every call
};

// Owned by the program; any thread may call it. Sessions that it opened may outlive it. In a forked
// child every call answers SESSION_FORKED and its end does nothing.
class Client {
 public:
  // Errors: DAEMON_UNREACHABLE, with each socket that was tried and its errno.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options = {});
  // The sockets that Create tries for this address, in this order.
  static std::vector<std::string> Addresses(const std::string& address);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Flags of the node: no private value counts. Errors: FLAG_UNKNOWN, DEVICE_UNKNOWN, DEVICE_INDEX.
  absl::StatusOr<v1::FlagReading> Get(const std::string& flag, const std::string& device = "");
  absl::StatusOr<std::vector<v1::FlagReading>> List(const std::string& prefix = "");
  absl::StatusOr<v1::ExplainFlagResponse> Explain(const std::string& flag,
                                                  const std::string& device = "");
  absl::StatusOr<std::vector<v1::FlagDescription>> Describe(const std::string& flag = "");
  // The base layer, all or none. Errors: those of FlagService.SetFlags.
  absl::StatusOr<v1::SetFlagsResponse> Set(const FlagSettings& settings,
                                           const std::string& reason = "");
  absl::StatusOr<v1::UnsetFlagsResponse> Unset(const std::vector<std::string>& flags);

  absl::StatusOr<v1::GetNodeResponse> Node();
  absl::StatusOr<std::vector<v1::Device>> Devices();
  absl::StatusOr<std::vector<v1::Session>> Sessions();

  // Errors: those of SessionService.OpenSession, DAEMON_UNREACHABLE, DEADLINE_EXCEEDED.
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(SessionOptions options = {});

  // For calls that have no method here: Call() of <backendd/call.h>.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }
  absl::Duration deadline() const { return options_.deadline; }
  absl::Status CheckProcess() const;  // SESSION_FORKED in a forked child

 private:
  Client(ClientOptions options, std::string address, std::shared_ptr<grpc::Channel> channel);

  const ClientOptions options_;
  const std::string address_;
  const pid_t pid_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_CLIENT_H_
