#include "server/worker/device/cpu/widen.h"

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/narrow.h"

namespace backendd::worker {
namespace {

bool IsNarrow(DType dtype) { return IsFloating(dtype) && SizeOf(dtype) <= 2; }

// Moves bits, or chooses how each of its parts is widened.
bool TakesNarrow(OpKind kind) {
  return kind == OpKind::kCopy || kind == OpKind::kFill || kind == OpKind::kGroupedGemm;
}

// Sums of narrow types are those of the wide one, whatever f32 operations may take.
class StrictPrecision final : public FlagValues {
 public:
  explicit StrictPrecision(const Builder& b) : outer_(b.flags), ids_(b.cpu.flags) {}
  const FlagState& Get(FlagId flag) const override {
    const bool precision = flag == ids_.matmul_precision || flag == ids_.conv_precision;
    return precision ? strict_ : outer_.Get(flag);
  }

 private:
  const FlagValues& outer_;
  const CpuFlags& ids_;
  const FlagState strict_{};
};

// One operand between its own memory and the wide copy at `offset`.
template <class Narrow, class Wide>
void Move(const Nest<2>& nest, bool in, const Call& call, int place, uint64_t offset) {
  if (in) {
    Map1(nest, call.At<Narrow>(place), call.Work<Wide>(offset),
         [](Narrow value) -> Wide { return value.ToFloat(); });
  } else {
    Map1(nest, call.Work<Wide>(offset), call.At<Narrow>(place),
         [](Wide value) { return Narrow::FromDouble(value); });
  }
}

using MoveFunction = void (*)(const Nest<2>&, bool, const Call&, int, uint64_t);
template <class Wide>
MoveFunction MoveOf(DType narrow) {
  switch (narrow) {
    case DType::kF16:
      return Move<Half, Wide>;
    case DType::kBf16:
      return Move<Bfloat16, Wide>;
    case DType::kF8E4M3:
      return Move<F8E4M3, Wide>;
    default:
      return Move<F8E5M2, Wide>;
  }
}

struct Copied {
  int place;
  uint64_t offset;
  Use use;
  MoveFunction move;
  Nest<2> in, out;
};

}  // namespace

absl::Status BuildRow(Builder& b, const KernelRow& row) {
  const auto& operands = b.spec.operands;
  const bool any = std::any_of(operands.begin(), operands.end(), [](const OperandSpec& operand) {
    return operand.present && IsNarrow(operand.type.dtype);
  });
  if (!any || TakesNarrow(row.kind)) return row.build(b);
  const bool to_double =
      std::any_of(operands.begin(), operands.end(), [](const OperandSpec& operand) {
        return operand.present && operand.type.dtype == DType::kF64;
      });
  OperationSpec wide = b.spec;
  std::vector<Copied> copies;
  uint64_t bytes = 0;
  for (size_t place = 0; place < operands.size(); ++place) {
    const TensorType& own = operands[place].type;
    if (!operands[place].present || !IsNarrow(own.dtype)) continue;
    TensorType& type = wide.operands[place].type;
    type = RowMajor(to_double ? DType::kF64 : DType::kF32, own.shape);
    const uint64_t size = type.elements() * SizeOf(type.dtype);
    copies.push_back({static_cast<int>(place), b.Reserve(size), operands[place].use,
                      to_double ? MoveOf<double>(own.dtype) : MoveOf<float>(own.dtype),
                      MakeNest<2>(own.shape, {own.strides, type.strides}),
                      MakeNest<2>(own.shape, {type.strides, own.strides})});
    bytes += size;
  }
  const StrictPrecision flags(b);
  const std::vector<uint8_t> alignment(operands.size(), 0);
  Builder inner(b.cpu, wide, flags, alignment, &b.plan);
  RETURN_IF_ERROR(row.build(inner));
  Choice& choice = b.plan.choice;
  choice.algorithm =
      absl::StrCat("widened", choice.algorithm.empty() ? "" : ", ", choice.algorithm);
  choice.copied_bytes += bytes;
  b.plan.kernel = [copies = std::move(copies),
                   kernel = std::move(b.plan.kernel)](const Call& call) {
    absl::InlinedVector<Address, 8> places(call.operands.begin(), call.operands.end());
    for (const Copied& copy : copies) {
      places[copy.place] = call.workspace + copy.offset;
      if (copy.use != Use::kOut) copy.move(copy.in, true, call, copy.place, copy.offset);
    }
    RETURN_IF_ERROR(kernel({places, call.workspace, call.fault}));
    for (const Copied& copy : copies) {
      if (copy.use != Use::kIn) copy.move(copy.out, false, call, copy.place, copy.offset);
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

}  // namespace backendd::worker
