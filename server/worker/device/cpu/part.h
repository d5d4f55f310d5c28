// An operation of the device as a part of another one's plan: einsum, rnn and grouped gemm multiply
// by gemm, under the same flags and libraries as a gemm of their own.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_PART_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_PART_H_

#include <memory>

#include "server/worker/device/cpu/kernel.h"

namespace backendd::worker {

// y = a b (+ y) as an operation: a [..., m, k], b [..., k, n], y [..., m, n].
OperationSpec GemmSpec(const TensorType& a, const TensorType& b, const TensorType& y,
                       bool accumulate = false);

// Its plan; its workspace is a piece of the whole's. Any thread may share it.
class Part {
 public:
  static absl::StatusOr<Part> Build(Builder& whole, const OperationSpec& spec);

  // Operands as in the part's spec.
  absl::Status Run(const Call& call, absl::Span<const Address> operands) const;
  // a, b, y of a spec that GemmSpec made.
  absl::Status Multiply(const Call& call, const void* a, const void* b, void* y) const;
  const Choice& choice() const { return plan_->choice; }
  double cost_us() const { return plan_->cost_us; }

 private:
  std::shared_ptr<const CpuPlan> plan_;
  uint64_t workspace_ = 0;
  bool accumulate_ = false;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_PART_H_
