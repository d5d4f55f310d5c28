// backendctl wait --for=ready|flag=NAME:VALUE|lease=ID:released
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd::cli {
namespace {

// True once it is so; an error that waiting cannot mend ends the wait.
absl::StatusOr<bool> IsReady(const Arguments& arguments, const std::string&) {
  const auto connection = Connection::Open(arguments, absl::Seconds(1));
  if (!connection.ok()) return false;
  grpc::health::v1::HealthCheckResponse response;
  const absl::Status status = connection->Call<grpc::health::v1::Health>(
      &grpc::health::v1::Health::Stub::Check, grpc::health::v1::HealthCheckRequest(), &response);
  return status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

absl::StatusOr<bool> FlagIs(const Arguments& arguments, const std::string& what) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(what, absl::MaxSplits(':', 1));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(arguments));
  v1::GetFlagRequest request;
  v1::GetFlagResponse response;
  request.set_flag(parts.first);
  RETURN_IF_ERROR(
      connection.Call<v1::FlagService>(&v1::FlagService::Stub::GetFlag, request, &response));
  return ValueText(response.reading().value()) == parts.second;
}

absl::StatusOr<bool> LeaseIsReleased(const Arguments& arguments, const std::string& what) {
  const absl::string_view id_text = absl::StripSuffix(what, ":released");
  ASSIGN_OR_RETURN(const uint64_t id, ParseId(id_text));
  ASSIGN_OR_RETURN(const Connection connection, Connection::Open(arguments));
  v1::GetLeaseRequest request;
  v1::GetLeaseResponse response;
  request.set_lease_id(id);
  const absl::Status status =
      connection.Call<v1::LeaseService>(&v1::LeaseService::Stub::GetLease, request, &response);
  if (absl::IsNotFound(status)) return true;
  RETURN_IF_ERROR(status);
  return false;
}

int Wait(const Arguments& arguments) {
  static constexpr std::pair<absl::string_view,
                             absl::StatusOr<bool> (*)(const Arguments&, const std::string&)>
      kConditions[] = {{"ready", IsReady}, {"flag=", FlagIs}, {"lease=", LeaseIsReleased}};
  const auto timeout = ParseDuration(arguments.Get("--timeout", "30s"));
  const std::string condition = arguments.Get("--for");
  const auto* found = std::find_if(std::begin(kConditions), std::end(kConditions), [&](auto& c) {
    return absl::EndsWith(c.first, "=") ? absl::StartsWith(condition, c.first)
                                        : condition == c.first;
  });
  const bool complete = found == std::end(kConditions) || found->first == "ready" ||
                        absl::StrContains(condition, ":");
  if (!timeout.ok() || found == std::end(kConditions) || !complete) {
    PrintError(arguments,
               timeout.ok() ? absl::StrCat("cannot wait for '", condition, "'")
                            : std::string(timeout.status().message()),
               "--for=ready, --for=flag=NAME:VALUE or --for=lease=ID:released");
    return kExitUsage;
  }
  const absl::Time until = absl::Now() + *timeout;
  while (true) {
    const auto is_so = found->second(arguments, condition.substr(found->first.size()));
    if (!is_so.ok()) return Fail(arguments, is_so.status());
    if (*is_so) return kExitOk;
    if (absl::Now() >= until) {
      PrintError(arguments,
                 absl::StrCat("waited ", arguments.Get("--timeout", "30s"), " for ", condition),
                 "");
      return kExitWaitRanOut;
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

}  // namespace

std::vector<Command> WaitCommands() {
  return {{"wait",
           "Waits until something is so; exit 124 when the time has run out.",
           {},
           {{"--for", "WHAT", "ready, flag=NAME:VALUE or lease=ID:released"},
            {"--timeout", "TIME", "30s if not said"}},
           {"backendctl wait --for=ready --timeout 30s",
            "backendctl wait --for=flag=cudnn.benchmark:false"},
           Wait}};
}

}  // namespace backendd::cli
