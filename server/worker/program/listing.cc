#include "server/worker/program/listing.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr size_t kMaxInlineBytes = 64 << 10;  // of all writes together

// Outputs that may be the very view of an input (data-plane table, dagger). Updated operands are
// one operand and need no row.
struct InPlace {
  OpKind kind;
  absl::string_view output, input;
};
constexpr InPlace kInPlace[] = {
    {OpKind::kGemm, "y", "c"},
    {OpKind::kSoftmax, "y", "x"},
    {OpKind::kLayerNorm, "y", "x"},
    {OpKind::kBatchNorm, "y", "x"},
    {OpKind::kActivation, "y", "x"},
    {OpKind::kUnary, "y", "x"},
    {OpKind::kBinary, "y", "a"},
    {OpKind::kWhere, "y", "a"},
    {OpKind::kActivationGradient, "dx", "dy"},
    {OpKind::kSoftmaxGradient, "dx", "dy"},
};

bool MayBeInPlace(OpKind kind, const OperandSpec& output, const OperandSpec& input) {
  if (!(output.type == input.type)) return false;
  for (const InPlace& row : kInPlace) {
    if (row.kind == kind && row.output == output.name && row.input == input.name) return true;
  }
  return false;
}

std::string FieldOf(const Listing& listing, size_t operation, const OperandSpec& operand) {
  const OperationSpec& spec = listing.operations[operation].decoded.spec;
  int of_name = 0;
  for (const OperandSpec& other : spec.operands) of_name += other.name == operand.name;
  return absl::StrCat("operations[", operation, "].", KindName(spec.kind), ".", operand.name,
                      of_name > 1 ? absl::StrCat("[", operand.index, "]") : "");
}

// Mixes eight bytes at a time; the same in every process.
uint64_t HashOf(absl::string_view bytes, uint64_t hash) {
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), size);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
    bytes.remove_prefix(size);
  }
  return hash;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Listing>> MakeListing(
    const google::protobuf::RepeatedPtrField<v1::Operation>& operations, uint64_t limit) {
  RETURN_IF_ERROR(CheckQuota("operations", limit, 0, static_cast<uint64_t>(operations.size())));
  auto listing = std::make_shared<Listing>();
  listing->operations.reserve(operations.size());
  std::vector<Violation> violations;
  std::string key;
  size_t inline_bytes = 0;
  for (int i = 0; i < operations.size(); ++i) {
    const v1::Operation& message = operations[i];
    if (message.kind_case() == OpKind::kWrite) {
      inline_bytes += message.write().ByteSizeLong();
      RETURN_IF_ERROR(CheckQuota("inline bytes", kMaxInlineBytes + 1024, 0, inline_bytes));
    }
    const std::string path = absl::StrCat("operations[", i, "]");
    const size_t before = violations.size();
    ListedOperation& operation = listing->operations.emplace_back();
    operation.decoded = Decode(message, path, &violations);
    operation.tag = message.tag();
    operation.flags = message.flags();
    if (violations.size() > before) continue;
    Infer(operation.decoded.spec, path, &violations);
    key.clear();
    AppendKey(operation.decoded.spec, &key);
    listing->hash = HashOf(key, listing->hash + 1);
  }
  RETURN_IF_ERROR(ErrorFrom(std::move(violations)));
  return std::shared_ptr<const Listing>(std::move(listing));
}

bool MayOverlap(const TensorType& a, uint64_t a_offset, const TensorType& b, uint64_t b_offset) {
  const uint64_t a_end = a_offset + SpanBytes(a).value_or(INT64_MAX);
  const uint64_t b_end = b_offset + SpanBytes(b).value_or(INT64_MAX);
  if (a_end <= b_offset || b_end <= a_offset) return false;
  // Slices of one matrix: both repeat at one pitch, and within it they lie apart.
  if (a.shape != b.shape || a.dtype != b.dtype || a.strides != b.strides) return true;
  int widest = -1;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.shape[i] > 1 && (widest < 0 || a.strides[i] > a.strides[widest])) widest = i;
  }
  if (widest < 0) return true;
  TensorType inner = a;
  inner.shape[widest] = 1;
  const uint64_t pitch = static_cast<uint64_t>(a.strides[widest]) * SizeOf(a.dtype);
  const uint64_t width = SpanBytes(inner).value_or(INT64_MAX);
  if (pitch == 0 || width > pitch) return true;
  const uint64_t low = std::min(a_offset, b_offset);
  const uint64_t apart = (std::max(a_offset, b_offset) - low) % pitch;
  return apart < width || pitch - apart < width;
}

void Resolve(const Listing& listing, const BufferTable& buffers,
             const google::protobuf::RepeatedPtrField<v1::Binding>& bindings,
             std::vector<Step>* steps, std::vector<Violation>* violations) {
  steps->reserve(listing.operations.size());
  uint64_t last_id = 0;
  Buffer* last = nullptr;
  for (size_t i = 0; i < listing.operations.size(); ++i) {
    const ListedOperation& operation = listing.operations[i];
    const OperationSpec& spec = operation.decoded.spec;
    Step& step = steps->emplace_back();
    step.operation = &operation;
    const auto bad = [&](const OperandSpec& operand, Reason reason, absl::string_view sentence) {
      const std::string field = FieldOf(listing, i, operand);
      violations->push_back({field, reason, absl::StrCat("'", operand.name, "' ", sentence)});
    };
    for (size_t k = 0; k < spec.operands.size(); ++k) {
      const OperandSpec& operand = spec.operands[k];
      step.buffers.push_back(nullptr);
      step.addresses.push_back(nullptr);
      step.offsets.push_back(0);
      if (!operand.present) continue;
      const OperandPlace& place = operation.decoded.places[k];
      uint64_t id = place.buffer, offset = place.offset_bytes;
      for (const v1::Binding& binding : bindings) {
        if (binding.parameter() != place.buffer) continue;
        id = binding.buffer();
        offset = offset > UINT64_MAX - binding.offset() ? UINT64_MAX : offset + binding.offset();
      }
      Buffer* buffer = id == last_id ? last : buffers.Get(id);
      if (buffer == nullptr) {
        const absl::Status why = buffers.Find(id).status();
        bad(operand, ReasonOf(why).value_or(Reason::kInternal),
            absl::StrCat("is refused: ", why.message()));
        continue;
      }
      last_id = id;
      last = buffer;
      const uint64_t span = SpanBytes(operand.type).value_or(INT64_MAX);
      if (offset > buffer->bytes || span > buffer->bytes - offset) {
        bad(operand, Reason::kShapeInvalid,
            absl::StrCat("needs ", span, " bytes at offset ", offset, " of buffer ", id,
                         ", which has ", buffer->bytes));
        continue;
      }
      const size_t unit = SizeOf(RealOf(operand.type.dtype));
      if (unit > 1 && offset % unit != 0) {
        bad(operand, Reason::kArgumentInvalid,
            absl::StrCat("begins at offset ", offset, "; allowed: multiples of ", unit));
        continue;
      }
      if (operand.use != Use::kIn && !buffer->writable) {
        bad(operand, Reason::kArgumentInvalid,
            absl::StrCat("would be written, and buffer ", id, " is read only"));
        continue;
      }
      step.buffers[k] = buffer;
      step.offsets[k] = offset;
      if (span > 0) step.addresses[k] = static_cast<char*>(buffer->slab.address) + offset;
    }
    for (size_t out = 0; out < spec.operands.size(); ++out) {
      if (spec.operands[out].use == Use::kIn || step.addresses[out] == nullptr) continue;
      for (size_t other = 0; other < spec.operands.size(); ++other) {
        const bool read = spec.operands[other].use == Use::kIn;
        if (other == out || (!read && other < out) || step.addresses[other] == nullptr) continue;
        if (step.buffers[other] != step.buffers[out]) continue;
        if (!MayOverlap(spec.operands[out].type, step.offsets[out], spec.operands[other].type,
                        step.offsets[other]))
          continue;
        if (read && step.offsets[other] == step.offsets[out] &&
            MayBeInPlace(spec.kind, spec.operands[out], spec.operands[other]))
          continue;
        bad(spec.operands[out], Reason::kOverlap,
            absl::StrCat("overlaps '", spec.operands[other].name, "'"));
      }
    }
  }
}

}  // namespace backendd::worker
