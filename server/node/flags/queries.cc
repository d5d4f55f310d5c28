#include "server/node/flags/queries.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "shared/status/error.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

Reading Say(FlagValue value, const Reading& from) {
  Reading reading;
  reading.value = std::move(value);
  reading.layer = from.layer;
  reading.source = from.source;
  reading.since = from.since;
  return reading;
}

absl::Status Unknown(const FlagInfo& flag, const std::string& argument,
                     const std::vector<std::string>& known) {
  const std::vector<absl::string_view> names(known.begin(), known.end());
  const auto near = NearNames(argument, names);
  return Error(Reason::kArgumentInvalid,
               absl::StrCat("query '", flag.name, "' does not know '", argument,
                            "'; known: ", absl::StrJoin(near.empty() ? known : near, ", ")),
               {{"flag", flag.name}, {"argument", argument}});
}

}  // namespace

absl::StatusOr<Reading> Answer(const Snapshot& snapshot, FlagId flag,
                               absl::Span<const std::string> arguments,
                               const std::optional<DeviceId>& device,
                               std::optional<SessionId> session) {
  const FlagInfo& info = Catalogue::Get().info(flag);
  if (info.over_tensors)
    return Error(Reason::kOpUnsupported,
                 absl::StrCat("query '", info.name,
                              "' is asked of operands; this node has no such "
                              "operation"),
                 {{"flag", info.name}});
  const auto read = [&](FlagId of) -> absl::StatusOr<Reading> {
    if (session.has_value()) return snapshot.ReadFor(of, device, *session);
    return snapshot.Read(of, device);
  };
  const bool needs_mps = info.needs == "MPS";  // unavailable, whatever the arguments
  if (info.arguments.size() != arguments.size() && !(needs_mps && arguments.empty()))
    return Error(
        Reason::kArgumentInvalid,
        absl::StrCat("query '", info.name, "' takes ", info.arguments.size(), " arguments (",
                     absl::StrJoin(info.arguments, ", "), "), not ", arguments.size()),
        {{"flag", info.name}});
  if (arguments.empty() || needs_mps) return read(flag);

  const std::string& argument = arguments.front();
  const NodeFacts& facts = snapshot.facts();
  static const FlagId kFilter = FlagIdOf("python_native.disabled_operations");
  if (flag == FlagIdOf("python_native.is_operation_disabled")) {
    const auto filter = read(kFilter);
    if (!filter.ok()) return filter;
    const TextList& off = std::get<TextList>(*filter->value);
    return Say(std::count(off.begin(), off.end(), argument) > 0, *filter);
  }
  // The others are asked of a provider.
  const TextList& known =
      std::get<TextList>(*snapshot.Read(FlagIdOf("python_native.all_dsls"), {}).value);
  if (std::count(known.begin(), known.end(), argument) == 0) return Unknown(info, argument, known);
  if (flag == FlagIdOf("python_native.is_dsl_disabled")) {
    const auto enabled = read(FlagIdOf(absl::StrCat("python_native.", argument, ".enabled")));
    if (!enabled.ok()) return enabled;
    return Say(!std::get<bool>(*enabled->value), *enabled);
  }
  TextList operations;
  if (const auto found = facts.providers.find(argument); found != facts.providers.end()) {
    for (const auto& [operation, keys] : found->second.operations) operations.push_back(operation);
  }
  return Say(std::move(operations), snapshot.Read(flag, {}));
}

}  // namespace backendd::node
