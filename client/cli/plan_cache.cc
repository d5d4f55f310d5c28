// backendctl plan-cache show, clear, resize
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backendd/client.h"
#include "backendd/session.h"
#include "backendd/v1/compute_service.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"

namespace backendd::cli {
namespace {

constexpr absl::string_view kSizeFlag = "cuda.cufft_plan_cache.max_size";
// Workers answer who holds a grant: a session for one question.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(const Connection& connection) {
  SessionOptions options;
  options.name = "backendctl plan-cache";
  return connection.client().OpenSession(options);
}

int Show(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const auto session = OpenSession(*connection);
  if (!session.ok()) return Fail(arguments, session.status());
  const auto caches =
      (*session)->PlanCaches(arguments.Get("--device", "cpu"), arguments.Get("KIND"));
  if (!caches.ok()) return Fail(arguments, caches.status());
  if (WantsJson(arguments)) {
    std::vector<std::string> all;
    for (const v1::PlanCache& cache : *caches) all.push_back(JsonText(cache));
    PrintLine(JsonList("PlanCache", all));
    return kExitOk;
  }
  Table table({"KIND", "PLANS", "MAX", "HITS", "MISSES", "EVICTED", "BYTES", "PINNED"});
  for (const v1::PlanCache& c : *caches) {
    table.Add({c.kind(), absl::StrCat(c.size()), absl::StrCat(c.max_size()), absl::StrCat(c.hits()),
               absl::StrCat(c.misses()), absl::StrCat(c.evictions()), BytesText(c.bytes()),
               absl::StrCat(c.pinned())});
  }
  Print(arguments, table);
  return kExitOk;
}

int Clear(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  const auto session = OpenSession(*connection);
  if (!session.ok()) return Fail(arguments, session.status());
  const auto dropped =
      (*session)->ClearPlanCache(arguments.Get("--device", "cpu"), arguments.Get("KIND"));
  if (!dropped.ok()) return Fail(arguments, dropped.status());
  v1::ClearPlanCacheResponse response;
  response.set_dropped(*dropped);
  PrintLine(WantsJson(arguments) ? JsonText(response, "PlanCacheCleared")
                                 : absl::StrCat("dropped ", *dropped, " plans"));
  return kExitOk;
}

int Resize(const Arguments& arguments) {
  int64_t size = 0;
  if (!absl::SimpleAtoi(arguments.Get("SIZE"), &size)) {
    PrintError(arguments, absl::StrCat("'", arguments.Get("SIZE"), "' is not a number of plans"),
               "backendctl plan-cache resize --help");
    return kExitUsage;
  }
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  v1::SetFlagsRequest request;
  v1::SetFlagsResponse response;
  v1::FlagAssignment* assignment = request.add_assignments();
  assignment->set_flag(std::string(kSizeFlag));
  assignment->mutable_scope()->set_kind(v1::SCOPE_KIND_DEVICE);
  assignment->mutable_scope()->set_device(arguments.Get("--device", "cpu"));
  assignment->mutable_value()->set_int_(size);
  const absl::Status status =
      connection->Call<v1::FlagService>(&v1::FlagService::Stub::SetFlags, request, &response);
  if (!status.ok()) return Fail(arguments, status);
  PrintLine(WantsJson(arguments)
                ? JsonText(response, "Change")
                : absl::StrCat("the FFT plan cache of ", arguments.Get("--device", "cpu"),
                               " takes ", size, " plans"));
  return kExitOk;
}

}  // namespace

std::vector<Command> PlanCacheCommands() {
  return {
      {"plan-cache show",
       "The plan caches of a device: plans, limit, hits, misses, bytes.",
       {{"KIND", false}},
       {DeviceOption(), OutputOption()},
       {"backendctl plan-cache show", "backendctl plan-cache show fft --device cpu"},
       Show},
      {"plan-cache clear",
       "Drops plans; the next use makes them again.",
       {{"KIND", false}},
       {DeviceOption(), OutputOption()},
       {"backendctl plan-cache clear", "backendctl plan-cache clear fft --device cpu"},
       Clear},
      {"plan-cache resize",
       "Sets how many FFT plans a device keeps: a base value of cuda.cufft_plan_cache.max_size.",
       {{"SIZE"}},
       {DeviceOption(), OutputOption()},
       {"backendctl plan-cache resize 64", "backendctl plan-cache resize 0 --device cpu"},
       Resize}};
}

}  // namespace backendd::cli
