// backendctl describe flag|lease|session|device NAME, and explain FLAG
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd::cli {
namespace {

std::string ScopeText(const v1::Scope& scope) {
  if (scope.kind() == v1::SCOPE_KIND_DEVICE) return absl::StrCat("device ", scope.device());
  return scope.kind() == v1::SCOPE_KIND_SESSION ? "session" : "node";
}

void PrintDescription(const v1::FlagDescription& d) {
  std::vector<std::string> scopes;
  for (const int scope : d.scopes()) {
    scopes.push_back(Word(v1::ScopeKind_Name(static_cast<v1::ScopeKind>(scope)), "SCOPE_KIND_"));
  }
  const std::string bounds = !d.has_min() && !d.has_max()
                                 ? ""
                                 : absl::StrCat(d.has_min() ? absl::StrCat(d.min()) : "", "..",
                                                d.has_max() ? absl::StrCat(d.max()) : "");
  Print(Fields{{"flag", d.flag()},
               {"meaning", d.summary()},
               {"in torch", d.torch_spelling()},
               {"types", absl::StrJoin(d.types(), ", ")},
               {"allowed", absl::StrJoin(d.allowed(), ", ")},
               {"range", bounds},
               {"default", d.has_default_value() ? ValueText(d.default_value()) : d.default_note()},
               {"environment", absl::StrJoin(d.environment(), ", ")},
               {"scopes", absl::StrJoin(scopes, ", ")},
               {"access", Word(v1::FlagAccess_Name(d.access()), "FLAG_ACCESS_")},
               {"binds", Word(v1::FlagBinding_Name(d.binding()), "FLAG_BINDING_")},
               {"arguments", absl::StrJoin(d.arguments(), ", ")},
               {"replaced by", d.replaced_by()},
               {"needs", d.needs()},
               {"honoured by", d.honoured_by()}});
}

absl::Status DescribeFlag(const Connection& connection, const Arguments& arguments,
                          const std::string& name) {
  v1::DescribeFlagRequest request;
  v1::DescribeFlagResponse response;
  request.set_flag(name);
  RETURN_IF_ERROR(
      connection.Call<v1::FlagService>(&v1::FlagService::Stub::DescribeFlag, request, &response));
  for (const auto& description : response.descriptions()) {
    if (WantsJson(arguments)) {
      PrintLine(JsonText(description, "FlagDescription"));
    } else {
      PrintDescription(description);
    }
  }
  return absl::OkStatus();
}

absl::Status DescribeLease(const Connection& connection, const Arguments& arguments,
                           const std::string& name) {
  v1::GetLeaseRequest request;
  v1::GetLeaseResponse response;
  ASSIGN_OR_RETURN(const uint64_t id, ParseId(name));
  request.set_lease_id(id);
  RETURN_IF_ERROR(
      connection.Call<v1::LeaseService>(&v1::LeaseService::Stub::GetLease, request, &response));
  const v1::Lease& l = response.lease();
  if (WantsJson(arguments)) {
    PrintLine(JsonText(l, "Lease"));
    return absl::OkStatus();
  }
  Print(Fields{{"lease", IdText(l.lease_id())},
               {"holder", l.holder()},
               {"pid", absl::StrCat(l.pid())},
               {"uid", absl::StrCat(l.uid())},
               {"session", l.session_id() == 0 ? "" : IdText(l.session_id())},
               {"owner", l.owner()},
               {"reason", l.reason()},
               {"mode", Word(v1::LeaseMode_Name(l.mode()), "LEASE_MODE_")},
               {"state", Word(v1::LeaseState_Name(l.state()), "LEASE_STATE_")},
               {"priority", absl::StrCat(l.priority())},
               {"age", AgeText(FromProto(l.age()))},
               {"left", l.has_ttl_left() ? AgeText(FromProto(l.ttl_left())) : "as its session"},
               {"revision", absl::StrCat(l.revision())}});
  PrintLine("");
  Table table({"FLAG", "SCOPE", "REQUESTED", "IN FORCE", "COVERED BY", "VIA"});
  for (const auto& e : l.entries()) {
    table.Add({e.flag(), ScopeText(e.scope()), ValueText(e.requested()), ValueText(e.effective()),
               e.shadowed_by(), e.via()});
  }
  Print(arguments, table);
  return absl::OkStatus();
}

absl::Status DescribeSession(const Connection& connection, const Arguments& arguments,
                             const std::string& name) {
  v1::GetSessionRequest request;
  v1::GetSessionResponse response;
  ASSIGN_OR_RETURN(const uint64_t id, ParseId(name));
  request.set_session_id(id);
  RETURN_IF_ERROR(connection.Call<v1::SessionService>(&v1::SessionService::Stub::GetSession,
                                                      request, &response));
  const v1::Session& s = response.session();
  if (WantsJson(arguments)) {
    PrintLine(JsonText(s, "Session"));
    return absl::OkStatus();
  }
  Fields fields{{"session", IdText(s.session_id())},
                {"name", s.name()},
                {"pid", s.pid() == 0 ? "unknown" : absl::StrCat(s.pid())},
                {"uid", absl::StrCat(s.uid())},
                {"program", s.comm()},
                {"state", Word(v1::SessionState_Name(s.state()), "SESSION_STATE_")},
                {"semantics", Word(v1::Semantics_Name(s.semantics()), "SEMANTICS_")},
                {"age", AgeText(FromProto(s.age()))},
                {"ttl", AgeText(FromProto(s.ttl()))},
                {"left", AgeText(FromProto(s.ttl_left()))},
                {"death seen by", Word(v1::DeathDetector_Name(s.detector()), "DEATH_DETECTOR_")},
                {"leases", absl::StrCat(s.leases())}};
  std::vector<std::string> bytes, labels;
  for (const auto& [device, amount] : s.device_bytes()) {
    bytes.push_back(absl::StrCat(BytesText(amount), " on ", device));
  }
  for (const auto& [key, value] : s.labels()) labels.push_back(absl::StrCat(key, "=", value));
  fields.emplace_back("bytes", absl::StrJoin(bytes, ", "));
  fields.emplace_back("labels", absl::StrJoin(labels, ", "));
  Print(fields);
  return absl::OkStatus();
}

absl::Status DescribeDevice(const Connection& connection, const Arguments& arguments,
                            const std::string& name) {
  v1::ListDevicesResponse response;
  RETURN_IF_ERROR(connection.Call<v1::DeviceService>(&v1::DeviceService::Stub::ListDevices,
                                                     v1::ListDevicesRequest(), &response));
  std::vector<std::string> known;
  for (const v1::Device& d : response.devices()) {
    known.push_back(d.device());
    if (d.device() != name) continue;
    if (WantsJson(arguments)) {
      PrintLine(JsonText(d, "Device"));
      return absl::OkStatus();
    }
    std::vector<std::string> libraries;
    for (const auto& [library, version] : d.libraries()) {
      libraries.push_back(absl::StrCat(library, " ", version));
    }
    Print(Fields{{"device", d.device()},
                 {"name", d.name()},
                 {"state", Word(v1::DeviceState_Name(d.state()), "DEVICE_STATE_")},
                 {"detail", d.detail()},
                 {"epoch", absl::StrCat(d.epoch())},
                 {"restarts", absl::StrCat(d.restarts())},
                 {"pid", absl::StrCat(d.pid())},
                 {"revision", absl::StrCat(d.revision())},
                 {"sessions", absl::StrCat(d.sessions())},
                 {"isa", d.isa()},
                 {"threads", absl::StrCat(d.threads())},
                 {"memory", absl::StrCat(BytesText(d.used_bytes()), " of ",
                                         BytesText(d.memory_bytes()), " in use")},
                 {"libraries", absl::StrJoin(libraries, ", ")},
                 {"socket", d.socket()},
                 {"fd channel", d.fd_socket()}});
    return absl::OkStatus();
  }
  return Error(Reason::kDeviceUnknown, absl::StrCat("there is no device '", name, "'; there is ",
                                                    absl::StrJoin(known, ", ")));
}

int Describe(const Arguments& arguments) {
  static constexpr std::pair<
      absl::string_view, absl::Status (*)(const Connection&, const Arguments&, const std::string&)>
      kKinds[] = {{"flag", DescribeFlag},
                  {"lease", DescribeLease},
                  {"session", DescribeSession},
                  {"device", DescribeDevice}};
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  for (const auto& [kind, describe] : kKinds) {
    if (kind != arguments.Get("WHAT")) continue;
    const absl::Status status = describe(*connection, arguments, arguments.Get("NAME"));
    if (!status.ok()) return Fail(arguments, status);
  }
  return kExitOk;
}

int Explain(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  v1::ExplainFlagRequest request;
  v1::ExplainFlagResponse response;
  request.set_flag(arguments.Get("FLAG"));
  if (arguments.Has("--device")) request.set_device(arguments.Get("--device"));
  const absl::Status status =
      connection->Call<v1::FlagService>(&v1::FlagService::Stub::ExplainFlag, request, &response);
  if (!status.ok()) return Fail(arguments, status);
  if (WantsJson(arguments)) {
    PrintLine(JsonText(response, "Explanation"));
    return kExitOk;
  }
  const v1::FlagReading& r = response.reading();
  Print(Fields{{"value", r.has_value() ? ValueText(r.value())
                                       : absl::StrCat("unavailable: ", r.unavailable().reason())},
               {"requested", r.has_requested() ? ValueText(r.requested()) : ""},
               {"from", absl::StrCat(Word(v1::Layer_Name(r.layer()), "LAYER_"), ", ", r.source(),
                                     ", since revision ", r.since_revision())}});
  PrintDescription(response.description());
  PrintLine("");
  Table layers({"", "LAYER", "SCOPE", "VALUE", "SOURCE", "REVISION", "VIA", "REASON"});
  for (const auto& l : response.layers()) {
    layers.Add({l.winner() ? "*" : "", Word(v1::Layer_Name(l.layer()), "LAYER_"),
                ScopeText(l.scope()), ValueText(l.value()), l.source(), absl::StrCat(l.revision()),
                l.via(), l.warning().empty() ? l.reason() : l.warning()});
  }
  Print(arguments, layers);
  if (response.walk_size() > 0) {
    std::vector<std::string> steps;
    for (const auto& step : response.walk()) {
      steps.push_back(absl::StrCat(step.flag(), "=", ValueText(step.value())));
    }
    PrintLine(absl::StrCat("\nwalk: ", Escaped(absl::StrJoin(steps, " -> "))));
  }
  for (const auto& unmet : response.unmet()) {
    PrintLine(Escaped(absl::StrCat("not honoured by ", unmet.device(), ": ", unmet.reason())));
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> DescribeCommands() {
  return {{"describe",
           "Everything about one flag, lease, session or device.",
           {{"WHAT", true, false, Names::kNone, {"flag", "lease", "session", "device"}}, {"NAME"}},
           {OutputOption()},
           {"backendctl describe flag cudnn.benchmark", "backendctl describe device cpu"},
           Describe},
          {"explain",
           "Why a flag has its value: every layer's value, the winner, who put it there.",
           {{"FLAG", true, false, Names::kFlag}},
           {DeviceOption(), OutputOption()},
           {"backendctl explain cudnn.benchmark",
            "backendctl explain mkldnn.matmul.fp32_precision --device cpu"},
           Explain}};
}

}  // namespace backendd::cli
