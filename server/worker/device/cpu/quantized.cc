// quantize, dequantize, and a linear layer in 8 bits. Sums are exact on every CPU: the codes are
// widened to 16 bits, whose products of pairs no instruction saturates.
#include <algorithm>
#include <cmath>
#include <limits>

#include "server/worker/device/cpu/activation.h"
#include "server/worker/device/cpu/dot.h"
#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"

namespace backendd::worker {
namespace {

template <class Q>
Q Clamp(double code, double low = std::numeric_limits<Q>::min()) {
  if (std::isnan(code)) return Q(0);  // undefined, but a number
  return static_cast<Q>(std::min<double>(std::max(code, low), std::numeric_limits<Q>::max()));
}

// Codes and floats walked together with the index of the channel; `strides` of x then y.
struct Channels {
  Nest<2> nest;  // of one channel
  int64_t count = 1, x_step = 0, y_step = 0;
};

Channels MakeChannels(const TensorType& x, const TensorType& y, int64_t axis) {
  Channels c;
  Extents shape = x.shape, xs = x.strides, ys = y.strides;
  if (axis >= 0 && !shape.empty()) {
    c.count = shape[axis];
    c.x_step = xs[axis];
    c.y_step = ys[axis];
    shape[axis] = 1;
  }
  c.nest = MakeNest<2>(shape, {xs, ys});
  return c;
}

template <class Q>
absl::Status BuildGrid(Builder& b, bool back) {
  const auto& a = b.attributes<QuantizeAttributes>();
  const Channels c = MakeChannels(b.type(0), b.type(1), a.axis);
  b.plan.kernel = [=, scale = a.scale, zero_point = a.zero_point](const Call& call) {
    for (int64_t i = 0; i < c.count; ++i) {
      const float s = static_cast<float>(scale[i]);
      const int64_t zero = zero_point[i];
      if (back) {
        Map1(c.nest, call.At<Q>(0) + i * c.x_step, call.At<float>(1) + i * c.y_step,
             [s, zero](Q q) { return static_cast<float>(int64_t{q} - zero) * s; });
      } else {
        const float inverse = 1.0f / s;
        Map1(c.nest, call.At<float>(0) + i * c.x_step, call.At<Q>(1) + i * c.y_step,
             [inverse, zero](float x) {
               return Clamp<Q>(double{std::nearbyint(x * inverse)} + static_cast<double>(zero));
             });
      }
    }
    return absl::OkStatus();
  };
  b.plan.choice.library = "own";
  b.Cost(0, 8.0 * b.type(0).elements());
  return absl::OkStatus();
}

absl::Status ByCode(Builder& b, bool back) {
  switch (b.type(back ? 0 : 1).dtype) {
    case DType::kU8:
      return BuildGrid<uint8_t>(b, back);
    case DType::kS8:
      return BuildGrid<int8_t>(b, back);
    default:
      return BuildGrid<int32_t>(b, back);
  }
}

// The 8-bit grid of a range of floats, which always includes 0: as torch chooses it.
struct Grid {
  double scale = 1;
  int64_t zero_point = 0;
};
Grid Choose(double low, double high, double top) {
  Grid grid;
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  grid.scale = (high - low) / top;
  if (static_cast<float>(grid.scale) == 0.0f || std::isinf(1.0f / static_cast<float>(grid.scale))) {
    grid.scale = 0.1;
  }
  const double from_low = -low / grid.scale, from_high = top - high / grid.scale;
  const double low_error = std::fabs(low / grid.scale);
  const double high_error = top + std::fabs(high / grid.scale);
  const double zero = low_error < high_error ? from_low : from_high;
  grid.zero_point = Clamp<uint8_t>(std::min(std::nearbyint(zero), top));
  return grid;
}

struct Linear {
  enum { kX, kW, kBias, kY, kXScale, kXZeroPoint };
  QuantizedLinearAttributes a;
  bool dynamic = false, adds_first = false, has_bias = false;
  bool tells_scale = false, tells_zero_point = false;
  int64_t rows = 0, n = 0, k = 0;
  Nest<2> in;   // x to dense
  Nest<2> out;  // dense to y
  int64_t w_row = 0, w_column = 0, bias_step = 0;
  uint64_t x_at = 0, w_at = 0, y_at = 0;

  double WeightScale(int64_t j) const { return a.w_scale[a.w_scale.size() == 1 ? 0 : j]; }
  int16_t WeightZero(int64_t j) const {
    return static_cast<int16_t>(a.w_zero_point[a.w_zero_point.size() == 1 ? 0 : j]);
  }

  // x as codes less their zero point, dense; gives the scale.
  double Codes(const Call& call, int16_t* codes, DType dtype) const {
    if (!dynamic) {
      const auto zero = static_cast<int16_t>(a.x_zero_point);
      auto less = [zero](auto code) { return static_cast<int16_t>(code - zero); };
      dtype == DType::kU8 ? Map1(in, call.At<uint8_t>(kX), codes, less)
                          : Map1(in, call.At<int8_t>(kX), codes, less);
      return a.x_scale;
    }
    float low = 0, high = 0;
    const float* const x = call.At<float>(kX);
    Walk(in, [&](const Nest<2>::Steps& at) {
      for (int64_t i = 0; i < in.count; ++i) {
        const float value = x[at[0] + i * in.inner[0]];
        if (value < low) low = value;
        if (value > high) high = value;
      }
    });
    const Grid grid = Choose(low, high, a.reduce_range ? 127 : 255);
    const float inverse = 1.0f / static_cast<float>(grid.scale);
    const float zero = static_cast<float>(grid.zero_point);
    const bool first = adds_first;
    Map1(in, x, codes, [inverse, zero, first](float value) {
      const float code =
          first ? std::nearbyint(value * inverse + zero) : std::nearbyint(value * inverse) + zero;
      return static_cast<int16_t>(Clamp<uint8_t>(code) - static_cast<int16_t>(zero));
    });
    if (tells_scale) *call.At<double>(kXScale) = grid.scale;
    if (tells_zero_point) *call.At<int64_t>(kXZeroPoint) = grid.zero_point;
    return grid.scale;
  }

  template <class Y>
  Y Rescale(int64_t sum, float scale, float bias) const {
    if constexpr (std::is_same_v<Y, float>) {
      const float y = static_cast<float>(sum) * scale + bias;
      return a.relu ? Relu(y) : y;
    } else {
      const float y_scale = static_cast<float>(a.y_scale), zero = float(a.y_zero_point);
      const float y = adds_first
                          ? std::nearbyint((float(sum) * scale + bias) / y_scale + zero)
                          : std::nearbyint((float(sum) + bias / scale) * (scale / y_scale)) + zero;
      return a.relu ? Clamp<Y>(y, zero) : Clamp<Y>(y);
    }
  }

  template <class Y>
  absl::Status Run(const Call& call, DType dtype) const {
    int16_t *const x = call.Work<int16_t>(x_at), *const w = call.Work<int16_t>(w_at);
    Y* const y = call.Work<Y>(y_at);
    const double x_scale = Codes(call, x, dtype);
    for (int64_t j = 0; j < n; ++j) {
      const int8_t* const row = call.At<int8_t>(kW) + j * w_row;
      const int16_t zero = WeightZero(j);
      for (int64_t i = 0; i < k; ++i) w[i] = static_cast<int16_t>(row[i * w_column] - zero);
      const float scale = static_cast<float>(x_scale) * static_cast<float>(WeightScale(j));
      const float bias = has_bias ? call.At<float>(kBias)[j * bias_step] : 0.0f;
      for (int64_t r = 0; r < rows; ++r)
        y[r * n + j] = Rescale<Y>(Dot(x + r * k, w, k), scale, bias);
    }
    Map1(out, y, call.At<Y>(kY), [](Y value) { return value; });
    return absl::OkStatus();
  }
};

absl::Status BuildLinear(Builder& b) {
  static const FlagId engine_flag = FlagIdOf("quantized.engine");
  const std::string engine = b.Text(engine_flag);
  const bool unset = std::holds_alternative<None>(b.flags.Get(engine_flag).value) &&
                     b.flags.Get(engine_flag).layer <= 1;
  if (engine == "none" && !unset) {
    return Error(Reason::kNoKernel, "quantized.engine is none: no engine may multiply");
  }
  Linear l;
  l.a = b.attributes<QuantizedLinearAttributes>();
  l.dynamic = l.a.form == v1::QUANTIZED_LINEAR_FORM_DYNAMIC;
  l.adds_first = engine == "onednn";
  const TensorType &x = b.type(Linear::kX), &w = b.type(Linear::kW), &y = b.type(Linear::kY);
  l.n = w.shape[0];
  l.k = w.shape[1];
  l.rows = 1;
  for (int d = 0; d + 1 < x.rank(); ++d) l.rows *= x.shape[d];
  l.in = MakeNest<2>(x.shape, {x.strides, RowMajorStrides(x.shape)});
  l.out = MakeNest<2>(y.shape, {RowMajorStrides(y.shape), y.strides});
  l.w_row = w.strides[0];
  l.w_column = w.strides[1];
  l.has_bias = b.has(Linear::kBias);
  if (l.has_bias) l.bias_step = b.type(Linear::kBias).strides[0];
  l.tells_scale = b.has(Linear::kXScale);
  l.tells_zero_point = b.has(Linear::kXZeroPoint);
  l.x_at = b.Reserve(l.rows * l.k * sizeof(int16_t));
  l.w_at = b.Reserve(l.k * sizeof(int16_t));
  l.y_at = b.Reserve(l.rows * l.n * SizeOf(y.dtype));
  b.plan.choice.library = "own";
  b.plan.choice.algorithm =
      absl::StrCat("s16 pairs, ", l.adds_first ? "onednn" : "x86", " rounding");
  b.Cost(2.0 * l.rows * l.n * l.k, 0);
  b.plan.kernel = [l = std::move(l), x = x.dtype, y = y.dtype](const Call& call) {
    if (y == DType::kF32) return l.Run<float>(call, x);
    return y == DType::kU8 ? l.Run<uint8_t>(call, x) : l.Run<int8_t>(call, x);
  };
  return absl::OkStatus();
}

constexpr KernelRow kRows[] = {
    {OpKind::kQuantize, [](Builder& b) { return ByCode(b, false); }},
    {OpKind::kDequantize, [](Builder& b) { return ByCode(b, true); }},
    {OpKind::kQuantizedLinear, BuildLinear},
};

}  // namespace

absl::Span<const KernelRow> QuantizedKernels() { return kRows; }

}  // namespace backendd::worker
