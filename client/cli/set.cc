// backendctl set, unset
#include "absl/strings/str_cat.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "client/cli/assignments.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd::cli {

absl::StatusOr<std::vector<std::pair<std::string, v1::FlagValue>>> ReadAssignments(
    const Connection& connection, const std::vector<std::string>& words) {
  std::vector<std::pair<std::string, v1::FlagValue>> assignments;
  for (const std::string& word : words) {
    ASSIGN_OR_RETURN(const auto parts, SplitAssignment(word));
    v1::DescribeFlagRequest request;
    v1::DescribeFlagResponse response;
    request.set_flag(parts.first);
    RETURN_IF_ERROR(
        connection.Call<v1::FlagService>(&v1::FlagService::Stub::DescribeFlag, request, &response));
    if (response.descriptions().empty()) {
      return Error(Reason::kFlagUnknown, absl::StrCat("there is no flag '", parts.first, "'"));
    }
    const v1::FlagDescription& description = response.descriptions(0);
    ASSIGN_OR_RETURN(v1::FlagValue value, ParseValue(parts.second, description));
    assignments.emplace_back(parts.first, std::move(value));
  }
  return assignments;
}

v1::Scope ScopeOf(const Arguments& arguments) {
  v1::Scope scope;
  if (arguments.Has("--device")) {
    scope.set_kind(v1::SCOPE_KIND_DEVICE);
    scope.set_device(arguments.Get("--device"));
  }
  return scope;
}

namespace {

// What both answers have in common.
template <class Response>
int Report(const Arguments& arguments, const Response& response) {
  for (const v1::FieldViolation& v : response.violations()) {
    PrintError(arguments, absl::StrCat(v.field(), ": ", v.description()), "");
  }
  if (WantsJson(arguments)) {
    PrintLine(JsonText(response, "Change"));
  } else {
    for (const v1::FlagChange& c : response.changes()) {
      const std::string at = c.device().empty() ? "" : absl::StrCat(" on ", c.device());
      PrintLine(Escaped(absl::StrCat(c.flag(), at, ": ", ValueText(c.old_value()), " -> ",
                                     ValueText(c.new_value()))));
    }
    if (response.changes().empty() && response.violations().empty()) {
      PrintLine(arguments.Has("--dry-run") ? "would be accepted; nothing is written"
                                           : "no effective value changed");
    }
  }
  return response.violations().empty() ? kExitOk : kExitBadInput;
}

int Set(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const auto assignments = ReadAssignments(*connection, arguments.All("ASSIGNMENT"));
  if (!assignments.ok()) return Fail(arguments, assignments.status());
  v1::SetFlagsRequest request;
  v1::SetFlagsResponse response;
  request.set_reason(arguments.Get("--reason"));
  request.set_validate_only(arguments.Has("--dry-run"));
  for (const auto& [flag, value] : *assignments) {
    v1::FlagAssignment* assignment = request.add_assignments();
    assignment->set_flag(flag);
    *assignment->mutable_scope() = ScopeOf(arguments);
    *assignment->mutable_value() = value;
  }
  const absl::Status status =
      connection->Call<v1::FlagService>(&v1::FlagService::Stub::SetFlags, request, &response);
  if (!status.ok()) return Fail(arguments, status);
  for (const std::string& warning : response.warnings()) {
    fprintf(stderr, "warning: %s\n", Escaped(warning).c_str());
  }
  for (const std::string& kept : response.kept()) {
    fprintf(stderr, "kept: %s has a value of its own\n", Escaped(kept).c_str());
  }
  return Report(arguments, response);
}

int Unset(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  v1::UnsetFlagsRequest request;
  v1::UnsetFlagsResponse response;
  request.set_reason(arguments.Get("--reason"));
  request.set_validate_only(arguments.Has("--dry-run"));
  *request.mutable_scope() = ScopeOf(arguments);
  for (const std::string& flag : arguments.All("FLAG")) request.add_flags(flag);
  const absl::Status status =
      connection->Call<v1::FlagService>(&v1::FlagService::Stub::UnsetFlags, request, &response);
  return status.ok() ? Report(arguments, response) : Fail(arguments, status);
}

}  // namespace

std::vector<Command> SetCommands() {
  const std::vector<Option> options = {DeviceOption(),
                                       {"--reason", "TEXT", "why; explain shows it"},
                                       {"--dry-run", "", "only check, change nothing"},
                                       OutputOption()};
  return {{"set",
           "Writes base values, all or none: true, 10, tf32, [flash, math], (true, false), none.",
           {{"ASSIGNMENT", true, true, Names::kAssignment}},
           options,
           {"backendctl set cudnn.benchmark=true --reason tuning",
            "backendctl set cudnn.benchmark_limit=4 cudnn.deterministic=false --dry-run"},
           Set},
          {"unset",
           "Takes base values back; what the layers below say counts again.",
           {{"FLAG", true, true, Names::kFlag}},
           options,
           {"backendctl unset cudnn.benchmark", "backendctl unset cudnn.benchmark --device cpu"},
           Unset}};
}

}  // namespace backendd::cli
