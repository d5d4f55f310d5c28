#include "backendd/client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backendd/call.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "client/backendd/core.h"
#include "shared/convert/flag_value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd {
namespace {

// 0 if somebody listens at `path`, else the errno.
int Probe(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  return connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

// All pages of a list.
template <class Service, class Method, class Request, class Page, class Item>
absl::Status Pages(const Client& client, Method method, Request request, Page page,
                   const google::protobuf::RepeatedPtrField<Item>& (Page::*items)() const,
                   std::vector<Item>* all) {
  do {
    RETURN_IF_ERROR(Call<Service>(client, method, request, &page));
    all->insert(all->end(), (page.*items)().begin(), (page.*items)().end());
    request.set_page_token(page.next_page_token());
  } while (!page.next_page_token().empty());
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<grpc::Channel> UnixChannel(const std::string& path) {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // In gRPC's words; it is how long one attempt may take, and a loaded machine is slow to greet.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials(),
                                   arguments);
}

absl::Status WithReason(absl::Status status, const std::string& peer) {
  if (status.ok() || ReasonOf(status)) return status;
  if (absl::IsUnavailable(status)) {
    const int error = Probe(peer);
    return Error(
        Reason::kDaemonUnreachable,
        absl::StrCat("nobody answers at ", peer, " (",
                     error == 0 ? std::string(status.message()) : std::strerror(error), ")"),
        {{"address", peer}});
  }
  if (absl::IsDeadlineExceeded(status))
    return Error(Reason::kDeadlineExceeded, absl::StrCat(peer, " did not answer in time"));
  return status;
}

std::vector<std::string> Client::Addresses(const std::string& address) {
  const char* variable = getenv("BACKENDD_ADDRESS");
  std::string named = address.empty() && variable != nullptr ? variable : address;
  if (!named.empty()) {
    if (absl::StartsWith(named, "unix:")) named = named.substr(5);
    if (absl::StartsWith(named, "///")) named = named.substr(2);
    return {named};
  }
  std::vector<std::string> paths;
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0')
    paths.push_back(absl::StrCat(runtime, "/backendd/backendd.sock"));
  paths.push_back("/run/backendd/backendd.sock");
  return paths;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  std::vector<std::string> tried;
  for (const std::string& path : Addresses(options.address)) {
    const int error = Probe(path);
    if (error == 0) {
      setenv("GRPC_VERBOSITY", "NONE", 0);  // errors come as statuses
      return std::unique_ptr<Client>(new Client(std::move(options), path, UnixChannel(path)));
    }
    tried.push_back(absl::StrCat(path, " (", std::strerror(error), ")"));
  }
  return Error(Reason::kDaemonUnreachable,
               absl::StrCat("no daemon answers at ", absl::StrJoin(tried, ", ")));
}

Client::Client(ClientOptions options, std::string address, std::shared_ptr<grpc::Channel> channel)
    : options_(std::move(options)),
      address_(std::move(address)),
      pid_(getpid()),
      channel_(std::move(channel)) {}

Client::~Client() {
  // A channel that is taken down in a child breaks the parent's.
  if (getpid() != pid_) new std::shared_ptr<grpc::Channel>(std::move(channel_));
}

absl::Status Client::CheckProcess() const {
  if (getpid() == pid_) return absl::OkStatus();
  return Error(Reason::kSessionForked,
               "this client belongs to the parent process; start children with spawn, or create a "
               "client in each");
}

absl::StatusOr<v1::FlagReading> Client::Get(const std::string& flag, const std::string& device) {
  v1::GetFlagRequest request;
  request.set_flag(flag);
  if (!device.empty()) request.set_device(device);
  v1::GetFlagResponse response;
  RETURN_IF_ERROR(
      Call<v1::FlagService>(*this, &v1::FlagService::Stub::GetFlag, request, &response));
  return response.reading();
}

absl::StatusOr<std::vector<v1::FlagReading>> Client::List(const std::string& prefix) {
  v1::ListFlagsRequest request;
  request.set_prefix(prefix);
  std::vector<v1::FlagReading> all;
  RETURN_IF_ERROR(Pages<v1::FlagService>(*this, &v1::FlagService::Stub::ListFlags, request,
                                         v1::ListFlagsResponse(), &v1::ListFlagsResponse::readings,
                                         &all));
  return all;
}

absl::StatusOr<v1::ExplainFlagResponse> Client::Explain(const std::string& flag,
                                                        const std::string& device) {
  v1::ExplainFlagRequest request;
  request.set_flag(flag);
  if (!device.empty()) request.set_device(device);
  v1::ExplainFlagResponse response;
  RETURN_IF_ERROR(
      Call<v1::FlagService>(*this, &v1::FlagService::Stub::ExplainFlag, request, &response));
  return response;
}

absl::StatusOr<std::vector<v1::FlagDescription>> Client::Describe(const std::string& flag) {
  v1::DescribeFlagRequest request;
  request.set_flag(flag);
  v1::DescribeFlagResponse response;
  RETURN_IF_ERROR(
      Call<v1::FlagService>(*this, &v1::FlagService::Stub::DescribeFlag, request, &response));
  return std::vector<v1::FlagDescription>(response.descriptions().begin(),
                                          response.descriptions().end());
}

absl::StatusOr<v1::SetFlagsResponse> Client::Set(const FlagSettings& settings,
                                                 const std::string& reason) {
  v1::SetFlagsRequest request;
  for (const auto& [flag, value] : settings) {
    v1::FlagAssignment* assignment = request.add_assignments();
    assignment->set_flag(flag);
    *assignment->mutable_value() = ToProto(value);
  }
  request.set_reason(reason);
  request.set_request_id(RequestId());
  v1::SetFlagsResponse response;
  RETURN_IF_ERROR(
      Call<v1::FlagService>(*this, &v1::FlagService::Stub::SetFlags, request, &response));
  return response;
}

absl::StatusOr<v1::UnsetFlagsResponse> Client::Unset(const std::vector<std::string>& flags) {
  v1::UnsetFlagsRequest request;
  request.mutable_flags()->Assign(flags.begin(), flags.end());
  request.set_request_id(RequestId());
  v1::UnsetFlagsResponse response;
  RETURN_IF_ERROR(
      Call<v1::FlagService>(*this, &v1::FlagService::Stub::UnsetFlags, request, &response));
  return response;
}

absl::StatusOr<v1::GetNodeResponse> Client::Node() {
  v1::GetNodeResponse response;
  RETURN_IF_ERROR(Call<v1::DeviceService>(*this, &v1::DeviceService::Stub::GetNode,
                                          v1::GetNodeRequest(), &response));
  return response;
}

absl::StatusOr<std::vector<v1::Device>> Client::Devices() {
  std::vector<v1::Device> all;
  RETURN_IF_ERROR(Pages<v1::DeviceService>(*this, &v1::DeviceService::Stub::ListDevices,
                                           v1::ListDevicesRequest(), v1::ListDevicesResponse(),
                                           &v1::ListDevicesResponse::devices, &all));
  return all;
}

absl::StatusOr<std::vector<v1::Session>> Client::Sessions() {
  std::vector<v1::Session> all;
  RETURN_IF_ERROR(Pages<v1::SessionService>(*this, &v1::SessionService::Stub::ListSessions,
                                            v1::ListSessionsRequest(), v1::ListSessionsResponse(),
                                            &v1::ListSessionsResponse::sessions, &all));
  return all;
}

absl::StatusOr<std::unique_ptr<Session>> Client::OpenSession(SessionOptions options) {
  RETURN_IF_ERROR(CheckProcess());
  ASSIGN_OR_RETURN(auto core,
                   SessionCore::Open(channel_, address_, options_.deadline, std::move(options)));
  return std::unique_ptr<Session>(new Session(std::move(core)));
}

}  // namespace backendd
