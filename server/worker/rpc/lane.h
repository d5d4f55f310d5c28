// A lane: programs of one session, sent without waiting for answers.
#ifndef BACKENDD_SERVER_WORKER_RPC_LANE_H_
#define BACKENDD_SERVER_WORKER_RPC_LANE_H_

#include "backendd/v1/compute_service.grpc.pb.h"
#include "server/worker/program/admission.h"

namespace backendd::worker {

inline constexpr uint32_t kLaneVersion = 1;

// Owns itself; ends when the client half-closes and all is answered, or when it is gone. A lost
// lane loses nothing: what was admitted runs.
grpc::ServerBidiReactor<v1::LaneRequest, v1::LaneResponse>* NewLane(
    Shop& shop, Admission& admission, grpc::CallbackServerContext* context);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_RPC_LANE_H_
