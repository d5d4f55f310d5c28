// gemm of 8-bit integers.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_GEMM_INTEGER_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_GEMM_INTEGER_H_

#include "server/worker/device/cpu/kernel.h"

namespace backendd::worker {

// s8 or u8 by s8, to s32. Sums are exact; what passes 32 bits wraps.
absl::Status BuildIntegerGemm(Builder& b);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_GEMM_INTEGER_H_
