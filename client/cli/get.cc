// backendctl get flags|leases|devices|sessions [NAME]
#include <unistd.h>

#include <map>
#include <thread>

#include "absl/strings/match.h"
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

// One thing of a list, ready to print in every format.
struct Item {
  std::string name;
  std::vector<std::string> cells;  // of the wide table; the narrow one takes the first ones
  std::string json;
  std::string identity;  // equal where nothing but ages changed
};
using Items = absl::StatusOr<std::vector<Item>>;

struct Resource {
  absl::string_view word, kind;
  std::vector<std::string> header;  // the wide one
  size_t narrow;                    // columns of the narrow one
  Items (*fetch)(const Connection&, const Arguments&, const std::string& name);
};

Item ItemOf(const v1::FlagReading& r) {
  std::vector<std::string> devices;
  for (const auto& d : r.devices()) {
    devices.push_back(absl::StrCat(d.device(), "=", ValueText(d.value())));
  }
  const bool has_value = r.state_case() == v1::FlagReading::kValue;
  return {r.flag(),
          {r.flag(), has_value ? ValueText(r.value()) : "unavailable",
           Word(v1::Layer_Name(r.layer()), "LAYER_"), r.source(), absl::StrCat(r.since_revision()),
           r.has_requested() ? ValueText(r.requested()) : "", absl::StrJoin(devices, " "),
           has_value ? "" : r.unavailable().reason()},
          JsonText(r, "Flag"),
          r.SerializeAsString()};
}

Items Flags(const Connection& connection, const Arguments& arguments, const std::string& name) {
  std::vector<Item> items;
  const std::string device = arguments.Get("--device");
  if (!name.empty() && !absl::EndsWith(name, ".")) {
    v1::GetFlagRequest request;
    v1::GetFlagResponse response;
    request.set_flag(name);
    if (!device.empty()) request.set_device(device);
    RETURN_IF_ERROR(
        connection.Call<v1::FlagService>(&v1::FlagService::Stub::GetFlag, request, &response));
    return std::vector<Item>{ItemOf(response.reading())};
  }
  v1::ListFlagsRequest request;
  request.set_prefix(name);
  request.set_page_size(1000);
  request.set_changed_only(arguments.Has("--changed"));
  if (!device.empty()) request.set_device(device);
  do {
    v1::ListFlagsResponse response;
    RETURN_IF_ERROR(
        connection.Call<v1::FlagService>(&v1::FlagService::Stub::ListFlags, request, &response));
    for (const auto& reading : response.readings()) items.push_back(ItemOf(reading));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return items;
}

Item ItemOf(const v1::Lease& l) {
  std::vector<std::string> flags;
  for (const auto& e : l.entries()) {
    const std::string at = e.scope().device().empty() ? "" : absl::StrCat("@", e.scope().device());
    flags.push_back(absl::StrCat(e.flag(), at, "=", ValueText(e.requested())));
  }
  const std::string id = l.lease_id() == 0 ? absl::StrCat(l.prefix(), "...") : IdText(l.lease_id());
  v1::Lease still = l;
  still.clear_age();
  still.clear_ttl_left();
  return {id,
          {id, l.holder(), l.pid() == 0 ? "-" : absl::StrCat(l.pid()),
           Word(v1::LeaseMode_Name(l.mode()), "LEASE_MODE_"), AgeText(FromProto(l.age())),
           l.has_ttl_left() ? AgeText(FromProto(l.ttl_left())) : "-", absl::StrJoin(flags, " "),
           Word(v1::LeaseState_Name(l.state()), "LEASE_STATE_"), absl::StrCat(l.priority()),
           absl::StrCat(l.uid()), absl::StrCat(l.revision()), l.owner(), l.reason()},
          JsonText(l, "Lease"),
          still.SerializeAsString()};
}

Items Leases(const Connection& connection, const Arguments&, const std::string& name) {
  std::vector<Item> items;
  if (!name.empty()) {
    v1::GetLeaseRequest request;
    v1::GetLeaseResponse response;
    ASSIGN_OR_RETURN(const uint64_t id, ParseId(name));
    request.set_lease_id(id);
    RETURN_IF_ERROR(
        connection.Call<v1::LeaseService>(&v1::LeaseService::Stub::GetLease, request, &response));
    return std::vector<Item>{ItemOf(response.lease())};
  }
  v1::ListLeasesRequest request;
  request.set_page_size(1000);
  do {
    v1::ListLeasesResponse response;
    RETURN_IF_ERROR(
        connection.Call<v1::LeaseService>(&v1::LeaseService::Stub::ListLeases, request, &response));
    for (const auto& lease : response.leases()) items.push_back(ItemOf(lease));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return items;
}

Item ItemOf(const v1::Device& d) {
  return {
      d.device(),
      {d.device(), Word(v1::DeviceState_Name(d.state()), "DEVICE_STATE_"), absl::StrCat(d.epoch()),
       d.pid() == 0 ? "-" : absl::StrCat(d.pid()), absl::StrCat(d.threads()),
       BytesText(d.used_bytes()), BytesText(d.memory_bytes()), absl::StrCat(d.sessions()), d.isa(),
       absl::StrCat(d.restarts()), absl::StrCat(d.revision()), d.socket(), d.name(), d.detail()},
      JsonText(d, "Device"),
      d.SerializeAsString()};
}

Items Devices(const Connection& connection, const Arguments&, const std::string& name) {
  std::vector<Item> items;
  std::vector<std::string> known;
  v1::ListDevicesRequest request;
  do {
    v1::ListDevicesResponse response;
    RETURN_IF_ERROR(connection.Call<v1::DeviceService>(&v1::DeviceService::Stub::ListDevices,
                                                       request, &response));
    for (const auto& device : response.devices()) {
      known.push_back(device.device());
      if (name.empty() || name == device.device()) items.push_back(ItemOf(device));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  if (!name.empty() && items.empty()) {
    return Error(Reason::kDeviceUnknown, absl::StrCat("there is no device '", name, "'; there is ",
                                                      absl::StrJoin(known, ", ")));
  }
  return items;
}

Item ItemOf(const v1::Session& s) {
  std::vector<std::string> bytes;
  for (const auto& [device, amount] :
       std::map<std::string, uint64_t>(s.device_bytes().begin(), s.device_bytes().end())) {
    bytes.push_back(absl::StrCat(device, "=", BytesText(amount)));
  }
  const std::string id = s.session_id() == 0 ? "-" : IdText(s.session_id());
  v1::Session still = s;
  still.clear_age();
  still.clear_ttl_left();
  const bool ends_by_time = FromProto(s.ttl()) > absl::ZeroDuration();  // a held call's does not
  const auto time = [&](const google::protobuf::Duration& left) {
    return ends_by_time ? AgeText(FromProto(left)) : "-";
  };
  return {
      id,
      {id, s.name(), s.pid() == 0 ? "-" : absl::StrCat(s.pid()), absl::StrCat(s.uid()), s.comm(),
       AgeText(FromProto(s.age())), absl::StrCat(s.leases()),
       Word(v1::SessionState_Name(s.state()), "SESSION_STATE_"),
       Word(v1::Semantics_Name(s.semantics()), "SEMANTICS_"), time(s.ttl()), time(s.ttl_left()),
       Word(v1::DeathDetector_Name(s.detector()), "DEATH_DETECTOR_"), absl::StrJoin(bytes, " ")},
      JsonText(s, "Session"),
      still.SerializeAsString()};
}

Items Sessions(const Connection& connection, const Arguments&, const std::string& name) {
  std::vector<Item> items;
  if (!name.empty()) {
    v1::GetSessionRequest request;
    v1::GetSessionResponse response;
    ASSIGN_OR_RETURN(const uint64_t id, ParseId(name));
    request.set_session_id(id);
    RETURN_IF_ERROR(connection.Call<v1::SessionService>(&v1::SessionService::Stub::GetSession,
                                                        request, &response));
    return std::vector<Item>{ItemOf(response.session())};
  }
  v1::ListSessionsRequest request;
  request.set_page_size(1000);
  do {
    v1::ListSessionsResponse response;
    RETURN_IF_ERROR(connection.Call<v1::SessionService>(&v1::SessionService::Stub::ListSessions,
                                                        request, &response));
    for (const auto& session : response.sessions()) items.push_back(ItemOf(session));
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return items;
}

const std::vector<Resource>& Resources() {
  static const std::vector<Resource> resources = {
      {"flags",
       "Flag",
       {"FLAG", "VALUE", "LAYER", "SOURCE", "SINCE", "REQUESTED", "DEVICES", "WHY"},
       4,
       Flags},
      {"leases",
       "Lease",
       {"LEASE", "HOLDER", "PID", "MODE", "AGE", "LEFT", "FLAGS", "STATE", "PRIORITY", "UID",
        "REVISION", "OWNER", "REASON"},
       7,
       Leases},
      {"devices",
       "Device",
       {"DEVICE", "STATE", "EPOCH", "PID", "THREADS", "USED", "MEMORY", "SESSIONS", "ISA",
        "RESTARTS", "REVISION", "SOCKET", "NAME", "DETAIL"},
       8,
       Devices},
      {"sessions",
       "Session",
       {"SESSION", "NAME", "PID", "UID", "COMM", "AGE", "LEASES", "STATE", "SEMANTICS", "TTL",
        "LEFT", "DETECTOR", "BYTES"},
       8,
       Sessions}};
  return resources;
}

void PrintItems(const Arguments& arguments, const Resource& resource,
                const std::vector<Item>& items) {
  const std::string format = arguments.Get("--output", "table");
  if (format == "json") {
    std::vector<std::string> all;
    for (const Item& item : items) all.push_back(item.json);
    const bool one =
        arguments.Has("NAME") && items.size() == 1 && items[0].name == arguments.Get("NAME");
    return PrintLine(one ? all[0] : JsonList(resource.kind, all));
  }
  if (format == "name") {
    for (const Item& item : items) PrintLine(Escaped(item.name));
    return;
  }
  const size_t columns = format == "wide" ? resource.header.size() : resource.narrow;
  Table table({resource.header.begin(), resource.header.begin() + columns});
  for (const Item& item : items) {
    table.Add({item.cells.begin(), item.cells.begin() + columns});
  }
  Print(arguments, table);
}

// What a change is called for people and programs alike.
void PrintEvent(const Arguments& arguments, absl::string_view type, const Item& item) {
  if (WantsJson(arguments)) {
    PrintLine(absl::StrCat(R"({"apiVersion":"backendd.dev/v1","kind":"Event","type":")", type,
                           R"(","object":)", item.json, "}"));
  } else {
    PrintLine(absl::StrCat(type, "  ", Escaped(absl::StrJoin(item.cells, "  "))));
  }
}

// Leases, devices and sessions have no stream of their own: the list is asked once a second.
int WatchList(const Connection& connection, const Arguments& arguments, const Resource& resource) {
  std::map<std::string, Item> before;
  while (true) {
    const Items now = resource.fetch(connection, arguments, arguments.Get("NAME"));
    if (!now.ok()) return Fail(arguments, now.status());
    std::map<std::string, Item> after;
    for (const Item& item : *now) {
      const auto old = before.find(item.name);
      if (old == before.end()) PrintEvent(arguments, "ADDED", item);
      if (old != before.end() && old->second.identity != item.identity) {
        PrintEvent(arguments, "MODIFIED", item);
      }
      after.emplace(item.name, item);
    }
    for (const auto& [name, item] : before) {
      if (after.count(name) == 0) PrintEvent(arguments, "DELETED", item);
    }
    before = std::move(after);
    sleep(1);
  }
}

void PrintBatch(const Arguments& arguments, const v1::WatchFlagsResponse& message) {
  for (const v1::FlagChange& change : message.batch().changes()) {
    if (WantsJson(arguments)) {
      PrintLine(absl::StrCat(R"({"apiVersion":"backendd.dev/v1","kind":"FlagChange","revision":")",
                             message.revision(), "\",", JsonText(change).substr(1)));
      continue;
    }
    const std::string at = change.device().empty() ? "" : absl::StrCat("@", change.device());
    PrintLine(Escaped(absl::StrCat(message.revision(), "  ", change.flag(), at, "  ",
                                   ValueText(change.old_value()), " -> ",
                                   ValueText(change.new_value()), "  ", message.batch().cause())));
  }
}

int WatchFlags(const Connection& connection, const Arguments& arguments) {
  v1::WatchFlagsRequest request;
  request.set_initial_snapshot(true);
  if (arguments.Has("NAME")) request.add_prefixes(arguments.Get("NAME"));
  connection.Show(request);
  v1::FlagService::Stub stub(connection.channel());
  grpc::ClientContext context;
  auto stream = stub.WatchFlags(&context, request);
  Table table({"FLAG", "VALUE", "LAYER", "SOURCE"});
  for (v1::WatchFlagsResponse message; stream->Read(&message);) {
    if (message.has_snapshot()) {
      for (const auto& reading : message.snapshot().readings()) {
        const Item item = ItemOf(reading);
        if (WantsJson(arguments)) {
          PrintLine(item.json);
        } else {
          table.Add({item.cells.begin(), item.cells.begin() + 4});
        }
      }
    } else if (message.has_synced() && !WantsJson(arguments)) {
      Print(arguments, table);
    } else if (message.has_batch()) {
      PrintBatch(arguments, message);
    } else if (message.has_reset()) {
      fprintf(stderr, "# resync at %llu\n", static_cast<unsigned long long>(message.revision()));
      table = Table({"FLAG", "VALUE", "LAYER", "SOURCE"});
    }
  }
  return Fail(arguments, FromGrpc(stream->Finish()));
}

int Get(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const std::string word = arguments.Get("WHAT");
  for (const Resource& resource : Resources()) {
    if (resource.word != word) continue;
    if (arguments.Has("--watch")) {
      return word == "flags" ? WatchFlags(*connection, arguments)
                             : WatchList(*connection, arguments, resource);
    }
    const Items items = resource.fetch(*connection, arguments, arguments.Get("NAME"));
    if (!items.ok()) return Fail(arguments, items.status());
    PrintItems(arguments, resource, *items);
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> GetCommands() {
  return {{"get",
           "Lists flags, leases, devices or sessions, or shows one. A flag name that ends in '.' "
           "means all below it.",
           {{"WHAT", true, false, Names::kNone, {"flags", "leases", "devices", "sessions"}},
            {"NAME", false}},
           {{"-w,--watch", "", "then print what changes, until Ctrl-C"},
            {"--changed", "", "only flags that some layer above the built-in one set"},
            DeviceOption(),
            OutputOption({"table", "wide", "json", "name"})},
           {"backendctl get flags cudnn.", "backendctl get leases -o json --watch"},
           Get}};
}

}  // namespace backendd::cli
