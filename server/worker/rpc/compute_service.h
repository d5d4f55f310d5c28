// ComputeService on the wire: decode, one call into the core, encode.
#ifndef BACKENDD_SERVER_WORKER_RPC_COMPUTE_SERVICE_H_
#define BACKENDD_SERVER_WORKER_RPC_COMPUTE_SERVICE_H_

#include <memory>

#include "backendd/v1/compute_service.grpc.pb.h"
#include "server/worker/program/admission.h"
#include "server/worker/program/transfer.h"

namespace backendd::worker {

// Owned by the worker, which outlives it. Reactors run on gRPC's threads and never wait.
class ComputeService final : public v1::ComputeService::CallbackService {
 public:
  ComputeService(Shop& shop, Memory& memory, Admission& admission, Executor& executor)
      : shop_(shop), memory_(memory), admission_(admission), executor_(executor) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Submit(Context* context, const v1::SubmitRequest* request,
                  v1::SubmitResponse* response) override;
  grpc::ServerBidiReactor<v1::LaneRequest, v1::LaneResponse>* Lane(Context* context) override;
  Reactor* PrepareProgram(Context* context, const v1::PrepareProgramRequest* request,
                          v1::PrepareProgramResponse* response) override;
  Reactor* ReleaseProgram(Context* context, const v1::ReleaseProgramRequest* request,
                          v1::ReleaseProgramResponse* response) override;
  Reactor* AllocateBuffers(Context* context, const v1::AllocateBuffersRequest* request,
                           v1::AllocateBuffersResponse* response) override;
  Reactor* FreeBuffers(Context* context, const v1::FreeBuffersRequest* request,
                       v1::FreeBuffersResponse* response) override;
  Reactor* WriteChunks(Context* context, const v1::WriteChunksRequest* request,
                       v1::WriteChunksResponse* response) override;
  Reactor* ReadChunks(Context* context, const v1::ReadChunksRequest* request,
                      v1::ReadChunksResponse* response) override;
  Reactor* DescribeDevice(Context* context, const v1::DescribeDeviceRequest* request,
                          v1::DescribeDeviceResponse* response) override;
  Reactor* DescribePlanCache(Context* context, const v1::DescribePlanCacheRequest* request,
                             v1::DescribePlanCacheResponse* response) override;
  Reactor* ClearPlanCache(Context* context, const v1::ClearPlanCacheRequest* request,
                          v1::ClearPlanCacheResponse* response) override;

 private:
  Shop& shop_;
  Memory& memory_;
  Admission& admission_;
  Executor& executor_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_RPC_COMPUTE_SERVICE_H_
