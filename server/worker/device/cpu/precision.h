// What a request for tf32 or bf16 inside f32 operations comes to here.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_PRECISION_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_PRECISION_H_

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/onednn.h"

namespace backendd::worker {

// `by_onednn`: that library computes. Notes what is not honoured.
onednn::Math ChooseMath(Builder& builder, FlagId precision, bool by_onednn);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_PRECISION_H_
