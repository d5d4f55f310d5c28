// backendctl status, health, version
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backendd/v1/device_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/duration.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace backendd::cli {
namespace {

// At most 24 lines of 80 columns, whatever the node has.
constexpr int kMostDevices = 6;
constexpr int kMostNotes = 6;

void PrintStatus(const Connection& connection, const Arguments& arguments,
                 const v1::GetNodeResponse& node, const v1::ListDevicesResponse& devices) {
  Print(Fields{{"backendd", absl::StrCat(node.version(), ", pid ", node.pid(),
                                         node.draining() ? ", draining" : "")},
               {"socket", connection.socket()},
               {"up", AgeText(FromProto(node.uptime()))},
               {"revision", absl::StrCat(node.revision())},
               {"sessions", absl::StrCat(node.sessions())},
               {"leases", absl::StrCat(node.leases())},
               {"your role", node.role()}});
  PrintLine("");
  Table table({"DEVICE", "STATE", "EPOCH", "PID", "USED", "SESSIONS", "DETAIL"});
  for (int i = 0; i < devices.devices_size() && i < kMostDevices; ++i) {
    const v1::Device& d = devices.devices(i);
    table.Add({d.device(), Word(v1::DeviceState_Name(d.state()), "DEVICE_STATE_"),
               absl::StrCat(d.epoch()), absl::StrCat(d.pid()), BytesText(d.used_bytes()),
               absl::StrCat(d.sessions()), d.detail().empty() ? d.name() : d.detail()});
  }
  Print(arguments, table);
  if (devices.devices_size() > kMostDevices) {
    PrintLine(absl::StrCat("and ", devices.devices_size() - kMostDevices,
                           " more: backendctl get devices"));
  }
  for (int i = 0; i < node.notes_size() && i < kMostNotes; ++i) {
    PrintLine(absl::StrCat(i == 0 ? "\n" : "", "note: ", Escaped(node.notes(i))));
  }
}

int Status(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  v1::GetNodeResponse node;
  absl::Status status = connection->Call<v1::DeviceService>(&v1::DeviceService::Stub::GetNode,
                                                            v1::GetNodeRequest(), &node);
  v1::ListDevicesResponse devices;
  if (status.ok()) {
    status = connection->Call<v1::DeviceService>(&v1::DeviceService::Stub::ListDevices,
                                                 v1::ListDevicesRequest(), &devices);
  }
  if (!status.ok()) return Fail(arguments, status);
  if (WantsJson(arguments)) {
    std::string text = JsonText(node, "Status");
    text.pop_back();
    std::vector<std::string> all;
    for (const auto& device : devices.devices()) all.push_back(JsonText(device));
    PrintLine(absl::StrCat(text, ",\"devices\":[", absl::StrJoin(all, ","), "]}"));
  } else {
    PrintStatus(*connection, arguments, node, devices);
  }
  return kExitOk;
}

int Health(const Arguments& arguments) {
  using grpc::health::v1::HealthCheckResponse;
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  grpc::health::v1::HealthCheckRequest request;
  HealthCheckResponse response;
  request.set_service(arguments.Get("SERVICE"));
  const absl::Status status = connection->Call<grpc::health::v1::Health>(
      &grpc::health::v1::Health::Stub::Check, request, &response);
  if (!status.ok()) return Fail(arguments, status);
  if (WantsJson(arguments)) {
    PrintLine(JsonText(response, "Health"));
  } else {
    PrintLine(HealthCheckResponse::ServingStatus_Name(response.status()));
  }
  return response.status() == HealthCheckResponse::SERVING ? kExitOk : kExitNo;
}

int Version(const Arguments& arguments) {
  v1::GetNodeResponse node;
  const auto connection = Connection::Open(arguments);
  const bool served =
      connection.ok() &&
      connection
          ->Call<v1::DeviceService>(&v1::DeviceService::Stub::GetNode, v1::GetNodeRequest(), &node)
          .ok();
  const std::string daemon = served ? node.version() : "";
  if (WantsJson(arguments)) {
    PrintLine(absl::StrCat(R"({"apiVersion":"backendd.dev/v1","kind":"Version","client":")",
                           BACKENDD_VERSION, R"(","daemon":")", Escaped(daemon), "\"}"));
  } else {
    PrintLine(absl::StrCat("backendctl ", BACKENDD_VERSION));
    PrintLine(absl::StrCat("backendd   ", served ? Escaped(daemon) : "(no daemon answers)"));
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> StatusCommands() {
  return {{"status",
           "The node on one screen: daemon, devices, what is worth knowing.",
           {},
           {OutputOption()},
           {"backendctl status", "backendctl status -o json"},
           Status},
          {"health",
           "Asks grpc.health.v1; exit 0 serving, 1 not.",
           {{"SERVICE", false}},
           {OutputOption()},
           {"backendctl health", "backendctl health backendd.v1.FlagService"},
           Health},
          {"version",
           "The versions of backendctl and of the daemon, if it answers.",
           {},
           {OutputOption()},
           {"backendctl version", "backendctl version -o json"},
           Version}};
}

}  // namespace backendd::cli
