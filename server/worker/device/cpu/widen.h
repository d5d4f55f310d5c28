// Operations of 16-bit and 8-bit floats by the kernels of the wide types: operands are widened into
// the workspace, outputs rounded once.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_WIDEN_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_WIDEN_H_

#include "server/worker/device/cpu/kernel.h"

namespace backendd::worker {

// Builds the row's plan; around it the widening, where an operand is narrow and the row does not
// take that itself.
absl::Status BuildRow(Builder& b, const KernelRow& row);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_WIDEN_H_
