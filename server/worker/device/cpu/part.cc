#include "server/worker/device/cpu/part.h"

#include <algorithm>

#include "server/worker/device/cpu/widen.h"

namespace backendd::worker {

OperationSpec GemmSpec(const TensorType& a, const TensorType& b, const TensorType& y,
                       bool accumulate) {
  OperationSpec spec;
  spec.kind = OpKind::kGemm;
  GemmAttributes attributes;
  if (accumulate) attributes.beta = 1;
  spec.attributes = attributes;
  auto add = [&spec](absl::string_view name, Use use, const TensorType* type) {
    OperandSpec operand;
    operand.name = name;
    operand.use = use;
    operand.present = type != nullptr;
    if (type != nullptr) operand.type = *type;
    spec.operands.push_back(std::move(operand));
  };
  add("a", Use::kIn, &a);
  add("b", Use::kIn, &b);
  add("c", Use::kIn, accumulate ? &y : nullptr);
  add("bias", Use::kIn, nullptr);
  add("y", Use::kOut, &y);
  return spec;
}

absl::StatusOr<Part> Part::Build(Builder& whole, const OperationSpec& spec) {
  Part part;
  auto plan = std::make_shared<CpuPlan>();
  const std::vector<uint8_t> alignment(spec.operands.size(), 0);
  Builder builder(whole.cpu, spec, whole.flags, alignment, plan.get());
  const KernelRow* found = nullptr;
  for (auto rows : {GemmKernels(), AttentionKernels()}) {
    for (const KernelRow& row : rows) {
      if (row.kind == spec.kind) found = &row;
    }
  }
  if (found == nullptr) return Error(Reason::kInternal, "a part that is neither gemm nor sdpa");
  RETURN_IF_ERROR(BuildRow(builder, *found));
  part.workspace_ = whole.Reserve(plan->workspace_bytes);
  part.accumulate_ = spec.kind == OpKind::kGemm && spec.operands[2].present;
  Choice& choice = whole.plan.choice;
  if (choice.library.empty()) {
    choice.library = plan->choice.library;
    choice.library_version = plan->choice.library_version;
    choice.candidates = plan->choice.candidates;
    choice.unmet.insert(choice.unmet.end(), plan->choice.unmet.begin(), plan->choice.unmet.end());
  }
  choice.threads = std::max(choice.threads, plan->choice.threads);
  choice.copied_bytes += plan->choice.copied_bytes;
  whole.plan.host_bytes += 1024;
  part.plan_ = std::move(plan);
  return part;
}

absl::Status Part::Run(const Call& call, absl::Span<const Address> operands) const {
  return plan_->kernel({operands, call.workspace + workspace_, call.fault});
}

absl::Status Part::Multiply(const Call& call, const void* a, const void* b, void* y) const {
  const Address operands[] = {const_cast<void*>(a), const_cast<void*>(b), accumulate_ ? y : nullptr,
                              nullptr, y};
  return Run(call, operands);
}

}  // namespace backendd::worker
