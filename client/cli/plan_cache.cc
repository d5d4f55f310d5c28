// backendctl plan-cache show, clear, resize
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backendd/v1/compute_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd::cli {
namespace {

constexpr absl::string_view kSizeFlag = "cuda.cufft_plan_cache.max_size";
constexpr absl::Duration kDeadline = absl::Seconds(10);

// A session for one call to a worker: workers answer who holds a grant. One thread; ends with
// itself.
class WorkerCall {
 public:
  explicit WorkerCall(const Connection& connection)
      : stub_(connection.channel()), stream_(stub_.OpenSession(&context_)) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + kDeadline));
  }
  ~WorkerCall() {
    if (!open_) return;
    v1::OpenSessionRequest goodbye;
    goodbye.mutable_goodbye();
    stream_->Write(goodbye);
    stream_->WritesDone();
    (void)stream_->Finish();
  }

  // Calls the worker of `device`, or of the node's first device.
  template <class Request, class Response>
  absl::Status Run(const std::string& device,
                   grpc::Status (v1::ComputeService::Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                   const Request& request, Response* response) {
    ASSIGN_OR_RETURN(const v1::DeviceGrant grant, Grant(device));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kDeadline));
    context.AddMetadata("backendd-grant", absl::BytesToHexString(grant.token()));
    grpc::ChannelArguments arguments;
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    v1::ComputeService::Stub worker(grpc::CreateCustomChannel(
        absl::StrCat("unix:", grant.socket()), grpc::InsecureChannelCredentials(), arguments));
    return FromGrpc((worker.*method)(&context, request, response));
  }

 private:
  absl::StatusOr<v1::DeviceGrant> Grant(const std::string& device) {
    v1::OpenSessionRequest hello;
    hello.mutable_hello()->set_name("backendctl plan-cache");
    v1::OpenSessionResponse welcome;
    if (!stream_->Write(hello) || !stream_->Read(&welcome)) return FromGrpc(stream_->Finish());
    open_ = true;
    std::vector<std::string> known;
    for (const v1::DeviceGrant& grant : welcome.welcome().devices()) {
      if (device.empty() || grant.device() == device) return grant;
      known.push_back(grant.device());
    }
    return Error(Reason::kDeviceUnknown, absl::StrCat("there is no device '", device,
                                                      "'; there is ", absl::StrJoin(known, ", ")));
  }

  grpc::ClientContext context_;
  v1::SessionService::Stub stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>>
      stream_;
  bool open_ = false;
};

int Show(const Arguments& arguments) {
  const auto connection = Connection::Open(arguments);
  if (!connection.ok()) return Fail(arguments, connection.status());
  v1::DescribePlanCacheRequest request;
  v1::DescribePlanCacheResponse response;
  request.set_kind(arguments.Get("KIND"));
  const absl::Status status =
      WorkerCall(*connection)
          .Run(arguments.Get("--device"), &v1::ComputeService::Stub::DescribePlanCache, request,
               &response);
  if (!status.ok()) return Fail(arguments, status);
  if (WantsJson(arguments)) {
    PrintLine(JsonText(response, "PlanCaches"));
    return kExitOk;
  }
  Table table({"KIND", "PLANS", "MAX", "HITS", "MISSES", "EVICTED", "BYTES", "PINNED"});
  for (const v1::PlanCache& c : response.caches()) {
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
  v1::ClearPlanCacheRequest request;
  v1::ClearPlanCacheResponse response;
  request.set_kind(arguments.Get("KIND"));
  const absl::Status status =
      WorkerCall(*connection)
          .Run(arguments.Get("--device"), &v1::ComputeService::Stub::ClearPlanCache, request,
               &response);
  if (!status.ok()) return Fail(arguments, status);
  PrintLine(WantsJson(arguments) ? JsonText(response, "PlanCacheCleared")
                                 : absl::StrCat("dropped ", response.dropped(), " plans"));
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
       "Sets how many FFT plans a device keeps, as a base value of cuda.cufft_plan_cache.max_size.",
       {{"SIZE"}},
       {DeviceOption(), OutputOption()},
       {"backendctl plan-cache resize 64", "backendctl plan-cache resize 0 --device cpu"},
       Resize}};
}

}  // namespace backendd::cli
