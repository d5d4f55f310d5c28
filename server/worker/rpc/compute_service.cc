#include "server/worker/rpc/compute_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/program/reply.h"
#include "server/worker/rpc/caller.h"
#include "server/worker/rpc/lane.h"
#include "shared/status/grpc_status.h"
#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  auto* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// One kind, or all of them.
absl::StatusOr<std::vector<PlanKind>> KindsOf(const std::string& name) {
  std::vector<PlanKind> kinds;
  for (int i = 0; i < kPlanKinds; ++i) {
    const PlanKind kind = static_cast<PlanKind>(i);
    if (name.empty() || PlanKindName(kind) == name) kinds.push_back(kind);
  }
  if (kinds.empty())
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("no plan cache is called '", name,
                              "'; there are fft, convolution, gemm, other"),
                 {{"kind", name}});
  return kinds;
}

}  // namespace

grpc::ServerUnaryReactor* ComputeService::Submit(Context* context, const v1::SubmitRequest* request,
                                                 v1::SubmitResponse* response) {
  absl::StatusOr<std::shared_ptr<Session>> session =
      SessionOf(shop_.sessions, *context, request->session_id());
  if (!session.ok()) return Finish(context, session.status());
  const absl::StatusOr<absl::Duration> until = DeadlineOf(*context, *request, shop_.clock);
  if (!until.ok()) return Finish(context, until.status());
  auto* const reactor = context->DefaultReactor();
  admission_.Submit(*std::move(session), request, response, *until,
                    [reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status)); });
  return reactor;
}

grpc::ServerBidiReactor<v1::LaneRequest, v1::LaneResponse>* ComputeService::Lane(Context* context) {
  return NewLane(shop_, admission_, context);
}

grpc::ServerUnaryReactor* ComputeService::PrepareProgram(Context* context,
                                                         const v1::PrepareProgramRequest* request,
                                                         v1::PrepareProgramResponse* response) {
  return Finish(context, [&]() -> absl::Status {
    constexpr size_t kMostPrepared = 256;
    ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                     SessionOf(shop_.sessions, *context, request->session_id()));
    if (request->program_id() == 0) return Error(Reason::kIdInvalid, "program_id is 0; 1 or more");
    uint64_t limit = 0;
    {
      MutexLock lock(&session->mutex);
      limit = session->quotas.operations;
    }
    ASSIGN_OR_RETURN(auto listing, MakeListing(request->operations(), limit));
    response->set_program_hash(listing->hash);
    auto prepared = std::make_shared<const Prepared>(
        Prepared{std::move(listing), {request->parameters().begin(), request->parameters().end()}});
    MutexLock lock(&session->mutex);
    RETURN_IF_ERROR(session->CheckOpen());
    if (session->prepared.contains(request->program_id()))
      return Error(Reason::kBufferExists,
                   absl::StrCat("the session has a program ", request->program_id(), " already"),
                   {{"program", absl::StrCat(request->program_id())}});
    RETURN_IF_ERROR(CheckQuota("prepared programs", kMostPrepared, session->prepared.size(), 1));
    session->prepared.emplace(request->program_id(), std::move(prepared));
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* ComputeService::ReleaseProgram(Context* context,
                                                         const v1::ReleaseProgramRequest* request,
                                                         v1::ReleaseProgramResponse*) {
  return Finish(context, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                     SessionOf(shop_.sessions, *context, request->session_id()));
    MutexLock lock(&session->mutex);
    if (session->prepared.erase(request->program_id()) > 0) return absl::OkStatus();
    return Error(Reason::kProgramUnknown,
                 absl::StrCat("the session has prepared no program ", request->program_id()),
                 {{"program", absl::StrCat(request->program_id())}});
  }());
}

grpc::ServerUnaryReactor* ComputeService::AllocateBuffers(Context* context,
                                                          const v1::AllocateBuffersRequest* request,
                                                          v1::AllocateBuffersResponse* response) {
  return Finish(context, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                     SessionOf(shop_.sessions, *context, request->session_id()));
    std::vector<BufferTable::Request> buffers;
    for (const v1::BufferSpec& buffer : request->buffers())
      buffers.push_back({buffer.buffer(), buffer.bytes()});
    MutexLock lock(&session->mutex);
    RETURN_IF_ERROR(session->CheckOpen());
    RETURN_IF_ERROR(session->buffers.Allocate(buffers, session->quotas));
    response->set_session_bytes(session->buffers.bytes());
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* ComputeService::FreeBuffers(Context* context,
                                                      const v1::FreeBuffersRequest* request,
                                                      v1::FreeBuffersResponse* response) {
  return Finish(context, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::shared_ptr<Session> session,
                     SessionOf(shop_.sessions, *context, request->session_id()));
    MutexLock lock(&session->mutex);
    RETURN_IF_ERROR(session->CheckOpen());
    const std::vector<uint64_t> ids(request->buffers().begin(), request->buffers().end());
    ASSIGN_OR_RETURN(const std::vector<uint64_t> deferred, session->buffers.Free(ids));
    for (uint64_t id : deferred) response->add_deferred(id);
    response->set_session_bytes(session->buffers.bytes());
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* ComputeService::WriteChunks(Context* context,
                                                      const v1::WriteChunksRequest* request,
                                                      v1::WriteChunksResponse*) {
  absl::StatusOr<std::shared_ptr<Session>> session =
      SessionOf(shop_.sessions, *context, request->session_id());
  if (!session.ok()) return Finish(context, session.status());
  auto* const reactor = context->DefaultReactor();
  Transfer::Run(shop_, executor_, *std::move(session),
                {request->buffer(), request->offset(), request->bytes().size()}, &request->bytes(),
                nullptr,
                [reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status)); });
  return reactor;
}

grpc::ServerUnaryReactor* ComputeService::ReadChunks(Context* context,
                                                     const v1::ReadChunksRequest* request,
                                                     v1::ReadChunksResponse* response) {
  absl::StatusOr<std::shared_ptr<Session>> session =
      SessionOf(shop_.sessions, *context, request->session_id());
  if (!session.ok()) return Finish(context, session.status());
  auto* const reactor = context->DefaultReactor();
  Transfer::Run(shop_, executor_, *std::move(session),
                {request->buffer(), request->offset(), request->length()}, nullptr,
                response->mutable_bytes(),
                [reactor](const absl::Status& status) { reactor->Finish(ToGrpc(status)); });
  return reactor;
}

grpc::ServerUnaryReactor* ComputeService::DescribeDevice(Context* context,
                                                         const v1::DescribeDeviceRequest*,
                                                         v1::DescribeDeviceResponse* response) {
  const DeviceInfo& info = shop_.device.info();
  v1::Device* const device = response->mutable_device();
  FillDevice(info, shop_.device_epoch, device);
  device->set_state(v1::DEVICE_STATE_SERVING);
  device->set_revision(shop_.flags.revision());
  const uint64_t buffers = memory_.Used(MemoryUse::kBuffer);
  const uint64_t arenas = memory_.Used(MemoryUse::kArena);
  device->set_used_bytes(buffers + arenas);
  auto& ledger = *response->mutable_ledger();
  ledger["buffers"] = buffers;
  ledger["arenas"] = arenas;
  ledger["workspaces"] = memory_.Used(MemoryUse::kWorkspace);
  ledger["plans"] = shop_.plans.bytes();
  auto& programs = *response->mutable_programs();
  programs["succeeded"] = shop_.succeeded;
  programs["failed"] = shop_.failed;
  programs["refused"] = shop_.refused;
  if (const auto session = shop_.sessions.Find(GrantToken(*context), CallerOf(*context))) {
    MutexLock lock(&session->mutex);
    response->set_session_bytes(session->buffers.bytes());
    response->set_session_buffers(session->buffers.size());
  }
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ComputeService::DescribePlanCache(
    Context* context, const v1::DescribePlanCacheRequest* request,
    v1::DescribePlanCacheResponse* response) {
  return Finish(context, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<PlanKind> kinds, KindsOf(request->kind()));
    for (PlanKind kind : kinds) {
      const PlanCacheStats stats = shop_.plans.Describe(kind);
      v1::PlanCache* const cache = response->add_caches();
      cache->set_kind(std::string(PlanKindName(kind)));
      cache->set_size(stats.size);
      cache->set_max_size(stats.max_size);
      cache->set_hits(stats.hits);
      cache->set_misses(stats.misses);
      cache->set_evictions(stats.evictions);
      cache->set_bytes(stats.bytes);
      cache->set_max_bytes(shop_.plans.max_bytes());
      cache->set_pinned(stats.pinned);
    }
    return absl::OkStatus();
  }());
}

grpc::ServerUnaryReactor* ComputeService::ClearPlanCache(Context* context,
                                                         const v1::ClearPlanCacheRequest* request,
                                                         v1::ClearPlanCacheResponse* response) {
  return Finish(context, [&]() -> absl::Status {
    if (shop_.sessions.Find(GrantToken(*context), CallerOf(*context)) == nullptr)
      return UnknownSession(0);
    ASSIGN_OR_RETURN(const std::vector<PlanKind> kinds, KindsOf(request->kind()));
    uint64_t dropped = 0;
    for (PlanKind kind : kinds) dropped += shop_.plans.Clear(kind);
    response->set_dropped(dropped);
    return absl::OkStatus();
  }());
}

}  // namespace backendd::worker
