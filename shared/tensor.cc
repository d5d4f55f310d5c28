#include "shared/tensor.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace backendd {
namespace {

struct DTypeRow {
  absl::string_view name;
  size_t bytes;
};
constexpr std::array<DTypeRow, kDTypeCount> kTypes = {{
    {"", 0},
    {"f64", 8},
    {"f32", 4},
    {"f16", 2},
    {"bf16", 2},
    {"f8e4m3", 1},
    {"f8e5m2", 1},
    {"c128", 16},
    {"c64", 8},
    {"s64", 8},
    {"s32", 4},
    {"s16", 2},
    {"s8", 1},
    {"u8", 1},
    {"bool", 1},
    {"u64", 8},
}};

}  // namespace

size_t SizeOf(DType dtype) { return kTypes[static_cast<size_t>(dtype)].bytes; }
absl::string_view Name(DType dtype) { return kTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (int i = 1; i < kDTypeCount; ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsComplex(DType dtype) { return dtype == DType::kC64 || dtype == DType::kC128; }
bool IsFloating(DType dtype) { return dtype >= DType::kF64 && dtype <= DType::kF8E5M2; }
bool IsInteger(DType dtype) {
  return (dtype >= DType::kS64 && dtype <= DType::kU8) || dtype == DType::kU64;
}
DType RealOf(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  if (dtype == DType::kC128) return DType::kF64;
  return dtype;
}

std::optional<int64_t> CheckedMul(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

int64_t TensorType::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

bool TensorType::row_major() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool TensorType::overlaps_itself() const {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (int i = 0; i < rank(); ++i) {
    if (shape[i] == 0) return false;
    if (shape[i] > 1) dims.emplace_back(strides[i], shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the farthest element of the dims so far
  for (const auto& [stride, extent] : dims) {
    if (stride <= reach) return true;  // conservative: interleaved views count as overlapping
    reach += stride * (extent - 1);
  }
  return false;
}

Extents RowMajorStrides(absl::Span<const int64_t> shape) {
  Extents strides(shape.size());
  int64_t stride = 1;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    strides[i] = stride;
    // Saturates instead of overflowing; SpanBytes reports the overflow.
    stride = CheckedMul(stride, std::max<int64_t>(shape[i], 1)).value_or(INT64_MAX);
  }
  return strides;
}

TensorType RowMajor(DType dtype, absl::Span<const int64_t> shape) {
  return {dtype, Extents(shape.begin(), shape.end()), RowMajorStrides(shape)};
}

std::optional<int64_t> SpanBytes(const TensorType& type) {
  int64_t last = 0;
  for (int i = 0; i < type.rank(); ++i) {
    if (type.shape[i] == 0) return 0;
  }
  for (int i = 0; i < type.rank(); ++i) {
    const auto step = CheckedMul(type.shape[i] - 1, type.strides[i]);
    const auto sum = step ? CheckedAdd(last, *step) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto count = CheckedAdd(last, 1);
  return count ? CheckedMul(*count, static_cast<int64_t>(SizeOf(type.dtype))) : std::nullopt;
}

std::string ToText(const TensorType& type) {
  std::string text = absl::StrCat(Name(type.dtype), "[", absl::StrJoin(type.shape, ", "), "]");
  if (!type.row_major())
    absl::StrAppend(&text, " strides [", absl::StrJoin(type.strides, ", "), "]");
  return text;
}

std::optional<Extents> BroadcastShapes(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  if (a.size() < b.size()) std::swap(a, b);
  Extents shape(a.begin(), a.end());
  const size_t lead = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t& extent = shape[lead + i];
    if (extent == b[i] || b[i] == 1) continue;
    if (extent != 1) return std::nullopt;
    extent = b[i];
  }
  return shape;
}

}  // namespace backendd
