// copy (with conversion) and fill, all element types.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/narrow.h"

namespace backendd::worker {
namespace {

// To nearest, ties to even; floats to integers towards zero, out of range the nearest end, NaN 0;
// integers wrap.
template <class To, class From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsNarrow<From>) {
    return Convert<To>(value.ToFloat());
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (kIsNarrow<To>) {
    if constexpr (std::is_integral_v<From>) {
      return To::FromDouble(static_cast<double>(value));
    } else {
      return To::FromDouble(value);
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(value)) return 0;
    const double low = static_cast<double>(std::numeric_limits<To>::min());
    const double high = static_cast<double>(std::numeric_limits<To>::max());
    if (value <= low) return std::numeric_limits<To>::min();
    if (value >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class F>
absl::Status ByType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double{});
    case DType::kF32:
      return f(float{});
    case DType::kF16:
      return f(Half{});
    case DType::kBf16:
      return f(Bfloat16{});
    case DType::kF8E4M3:
      return f(F8E4M3{});
    case DType::kF8E5M2:
      return f(F8E5M2{});
    case DType::kS64:
      return f(int64_t{});
    case DType::kS32:
      return f(int32_t{});
    case DType::kS16:
      return f(int16_t{});
    case DType::kS8:
      return f(int8_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
    case DType::kU64:
      return f(uint64_t{});
    default:
      break;
  }
  return Error(Reason::kDtypeInvalid, absl::StrCat("no conversion of ", Name(dtype)));
}

template <class X, class Y>
Kernel MakeCopy(const TensorType& x, const TensorType& y) {
  const auto nest = MakeNest<2>(std::array<const TensorType*, 2>{&x, &y});
  return [nest](const Call& call) {
    Map1(nest, call.At<X>(0), call.At<Y>(1), [](X value) { return Convert<Y>(value); });
    return absl::OkStatus();
  };
}

absl::Status BuildCopy(Builder& b) {
  const TensorType &x = b.type(0), &y = b.type(1);
  b.plan.choice.library = "own";
  b.plan.choice.algorithm = x.dtype == y.dtype ? "copy" : "convert";
  b.Cost(0, x.elements() * (SizeOf(x.dtype) + SizeOf(y.dtype)));
  if (x.dtype == y.dtype && x.row_major() && y.row_major()) {
    b.plan.kernel = [bytes = x.elements() * SizeOf(x.dtype)](const Call& call) {
      if (bytes > 0) std::memmove(call.operands[1], call.operands[0], bytes);
      return absl::OkStatus();
    };
    return absl::OkStatus();
  }
  if (IsComplex(x.dtype)) {
    using C64 = std::complex<float>;
    using C128 = std::complex<double>;
    const bool from = x.dtype == DType::kC128, to = y.dtype == DType::kC128;
    b.plan.kernel = from ? (to ? MakeCopy<C128, C128>(x, y) : MakeCopy<C128, C64>(x, y))
                         : (to ? MakeCopy<C64, C128>(x, y) : MakeCopy<C64, C64>(x, y));
    return absl::OkStatus();
  }
  return ByType(x.dtype, [&](auto from) {
    return ByType(y.dtype, [&](auto to) {
      b.plan.kernel = MakeCopy<decltype(from), decltype(to)>(x, y);
      return absl::OkStatus();
    });
  });
}

template <class Y>
Kernel MakeFill(const TensorType& y, Y value) {
  const auto nest = MakeNest<1>(std::array<const TensorType*, 1>{&y});
  return [nest, value](const Call& call) {
    Y* at = call.At<Y>(0);
    Walk(nest, [&](const Nest<1>::Steps& from) {
      for (int64_t i = 0; i < nest.count; ++i) at[from[0] + i * nest.inner[0]] = value;
    });
    return absl::OkStatus();
  };
}

absl::Status BuildFill(Builder& b) {
  const TensorType& y = b.type(0);
  const auto& a = b.attributes<FillAttributes>();
  b.plan.choice.library = "own";
  b.plan.choice.algorithm = "fill";
  b.Cost(0, y.elements() * SizeOf(y.dtype));
  if (IsComplex(y.dtype)) {
    b.plan.kernel =
        y.dtype == DType::kC128 ? MakeFill(y, a.value) : MakeFill(y, std::complex<float>(a.value));
    return absl::OkStatus();
  }
  return ByType(y.dtype, [&](auto type) {
    using Y = decltype(type);
    b.plan.kernel =
        MakeFill(y, IsFloating(y.dtype) ? Convert<Y>(a.value.real()) : Convert<Y>(a.integer));
    return absl::OkStatus();
  });
}

constexpr KernelRow kRows[] = {{OpKind::kCopy, BuildCopy}, {OpKind::kFill, BuildFill}};

}  // namespace

absl::Span<const KernelRow> CopyKernels() { return kRows; }

}  // namespace backendd::worker
