// What an operand is: element type, shape, strides. Sizes are 64 bits and overflow is found, never
// wrapped.
#ifndef BACKENDD_SHARED_TENSOR_H_
#define BACKENDD_SHARED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace backendd {

// Numbers equal those of the wire's Dtype.
enum class DType : uint8_t {
  kUnspecified = 0,
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBf16 = 4,
  kF8E4M3 = 5,
  kF8E5M2 = 6,
  kC128 = 7,
  kC64 = 8,
  kS64 = 9,
  kS32 = 10,
  kS16 = 11,
  kS8 = 12,
  kU8 = 13,
  kBool = 14,
  kU64 = 15,
};
inline constexpr int kDTypeCount = 16;

size_t SizeOf(DType dtype);           // bytes of one element; 0 for kUnspecified
absl::string_view Name(DType dtype);  // "f32"
std::optional<DType> DTypeFromName(absl::string_view name);
bool IsComplex(DType dtype);
bool IsFloating(DType dtype);  // real floating point of any width
bool IsInteger(DType dtype);   // signed and unsigned integers, not bool
DType RealOf(DType dtype);     // f32 for c64, f64 for c128, else itself

using Extents = absl::InlinedVector<int64_t, 4>;
inline constexpr int kMaxRank = 8;
inline constexpr int64_t kMaxExtent = (int64_t{1} << 48) - 1;

// A view's type: `strides` in elements, always filled in (row-major where the wire left them out).
struct TensorType {
  DType dtype = DType::kUnspecified;
  Extents shape;
  Extents strides;

  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const;  // product of the extents; valid only for types that passed Check
  bool row_major() const;    // dense in row-major order (strides of extents 0 and 1 do not count)
  bool overlaps_itself()
      const;  // two indices may meet in one element (a stride of 0, or strides that cross)
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

Extents RowMajorStrides(absl::Span<const int64_t> shape);
TensorType RowMajor(DType dtype, absl::Span<const int64_t> shape);

// Bytes from the first to one past the last element that the view touches; nullopt on overflow past
// 2^63-1. A view without elements touches none: 0.
std::optional<int64_t> SpanBytes(const TensorType& type);
std::optional<int64_t> CheckedMul(int64_t a, int64_t b);
std::optional<int64_t> CheckedAdd(int64_t a, int64_t b);

// "f32[64, 1, 8, 8]", with strides where they are not row-major.
std::string ToText(const TensorType& type);

// NumPy broadcasting of two shapes; nullopt where they do not fit. 1 against 0 gives 0.
std::optional<Extents> BroadcastShapes(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

}  // namespace backendd

#endif  // BACKENDD_SHARED_TENSOR_H_
