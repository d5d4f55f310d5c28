#include "client/cli/connection.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/console.h"
#include "shared/status/error.h"

namespace backendd::cli {
namespace {

// 0 if somebody listens at `path`, else the errno.
int Probe(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

std::vector<std::string> Addresses(const Arguments& arguments) {
  const char* variable = getenv("BACKENDD_ADDRESS");
  std::string named = arguments.Get("--address", variable == nullptr ? "" : variable);
  if (!named.empty()) {
    if (absl::StartsWith(named, "unix:")) named = named.substr(5);
    if (absl::StartsWith(named, "///")) named = named.substr(2);
    return {named};
  }
  std::vector<std::string> paths;
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0') {
    paths.push_back(absl::StrCat(runtime, "/backendd/backendd.sock"));
  }
  paths.push_back("/run/backendd/backendd.sock");
  return paths;
}

absl::StatusOr<Connection> Connection::Open(const Arguments& arguments) {
  std::vector<std::string> tried;
  for (const std::string& path : Addresses(arguments)) {
    const int error = Probe(path);
    if (error != 0) {
      tried.push_back(absl::StrCat(path, " (", strerror(error), ")"));
      continue;
    }
    setenv("GRPC_VERBOSITY", "NONE", 0);  // its log would stand between our lines
    int verbosity = 0;
    (void)absl::SimpleAtoi(arguments.Get("--verbosity", "0"), &verbosity);
    grpc::ChannelArguments channel_arguments;
    channel_arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    return Connection(
        path,
        grpc::CreateCustomChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials(),
                                  channel_arguments),
        verbosity >= 6);
  }
  return Error(Reason::kDaemonUnreachable,
               absl::StrCat("no daemon answers at ", absl::StrJoin(tried, ", ")));
}

void Connection::Show(const google::protobuf::Message& request) const {
  if (!verbose_) return;
  // Each service stands in its own file with its own requests, named after its calls.
  const auto* type = request.GetDescriptor();
  const std::string json = absl::StrReplaceAll(JsonText(request), {{"'", "'\\''"}});
  const std::string data = json == "{}" ? "" : absl::StrCat("-d '", json, "' ");
  const std::string method(absl::StripSuffix(type->name(), "Request"));
  fprintf(stderr, "grpcurl -plaintext -unix %s%s %s/%s\n", data.c_str(), socket_.c_str(),
          type->file()->service(0)->full_name().c_str(), method.c_str());
}

}  // namespace backendd::cli
