#include "client/cli/connection.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/console.h"
#include "shared/status/macros.h"

namespace backendd::cli {

absl::StatusOr<Connection> Connection::Open(const Arguments& arguments, absl::Duration deadline) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // its log would stand between our lines
  int verbosity = 0;
  (void)absl::SimpleAtoi(arguments.Get("--verbosity", "0"), &verbosity);
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Client::Create({arguments.Get("--address"), deadline}));
  return Connection(std::move(client), verbosity >= 6);
}

void Connection::Show(const google::protobuf::Message& request) const {
  if (!verbose_) return;
  // Each service stands in its own file with its own requests, named after its calls.
  const auto* type = request.GetDescriptor();
  const std::string json = absl::StrReplaceAll(JsonText(request), {{"'", "'\\''"}});
  const std::string data = json == "{}" ? "" : absl::StrCat("-d '", json, "' ");
  const std::string method(absl::StripSuffix(type->name(), "Request"));
  fprintf(stderr, "grpcurl -plaintext -unix %s%s %s/%s\n", data.c_str(), socket().c_str(),
          type->file()->service(0)->full_name().c_str(), method.c_str());
}

}  // namespace backendd::cli
