// convolution and pooling, forward and gradients.
#include <algorithm>

#include "shared/operation/family.h"

namespace backendd {
namespace {

// The rank tells the spatial dimensions; 1 to 3.
template <class M>
void ReadConvolution(const M& m, int place_of_images, Reader& r) {
  ConvolutionAttributes c;
  const int spatial = std::clamp(r.type(place_of_images).rank() - 2, 0, kMaxRank - 2);
  c.stride = r.List("stride", m.stride(), spatial, 1);
  c.padding = r.List("padding", m.padding(), spatial, 0);
  c.dilation = r.List("dilation", m.dilation(), spatial, 1);
  c.output_padding = r.List("output_padding", m.output_padding(), spatial, 0);
  c.groups = m.groups() == 0 ? 1 : m.groups();
  c.transposed = m.transposed();
  if (c.groups < 1) r.Bad("groups", absl::StrCat("is ", c.groups, "; allowed: 1 or more"));
  for (int i = 0; i < spatial; ++i) {
    if (c.stride[i] < 1) r.Bad("stride", "is not positive");
    if (c.dilation[i] < 1) r.Bad("dilation", "is not positive");
    if (c.padding[i] < 0) r.Bad("padding", "is negative");
    if (c.output_padding[i] < 0 || (c.output_padding[i] > 0 && c.output_padding[i] >= c.stride[i] &&
                                    c.output_padding[i] >= c.dilation[i])) {
      r.Bad("output_padding", "must be under stride or dilation");
    }
    if (c.output_padding[i] > 0 && !c.transposed) {
      r.Bad("output_padding", "belongs to transposed convolutions");
    }
  }
  r.out().spec.attributes = c;
}

void DecodeForward(const v1::Operation& operation, Reader& r) {
  const v1::ConvolutionForward& m = operation.convolution_forward();
  r.In("x", m.has_x(), m.x());
  r.In("w", m.has_w(), m.w());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Out("y", m.has_y(), m.y());
  ReadConvolution(m, 0, r);
}

void DecodeInputGradient(const v1::Operation& operation, Reader& r) {
  const v1::ConvolutionInputGradient& m = operation.convolution_input_gradient();
  r.In("dy", m.has_dy(), m.dy());
  r.In("w", m.has_w(), m.w());
  r.Out("dx", m.has_dx(), m.dx());
  ReadConvolution(m, 0, r);
}

void DecodeWeightGradient(const v1::Operation& operation, Reader& r) {
  const v1::ConvolutionWeightGradient& m = operation.convolution_weight_gradient();
  r.In("x", m.has_x(), m.x());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dw", m.has_dw(), m.dw());
  r.MaybeOut("dbias", m.has_dbias(), m.dbias());
  ReadConvolution(m, 0, r);
}

// The shape of y; violations name `x` and `w`, places of the images and the kernels.
std::optional<Extents> ForwardShape(Check& check, int x, int w) {
  const auto& c = check.attributes<ConvolutionAttributes>();
  check.Floating(x);
  check.Dtype(w, check.dtype(x));
  check.Rank(x, 3, 5);
  if (!check.ok()) return std::nullopt;
  const Extents& sx = check.shape(x);
  const Extents& sw = check.shape(w);
  if (sw.size() != sx.size()) {
    check.Bad(w, Reason::kShapeInvalid,
              absl::StrCat("has rank ", sw.size(), "; x has ", sx.size()));
    return std::nullopt;
  }
  if (c.stride.size() != sx.size() - 2) {  // the lists were read by dy's rank
    check.Bad(x, Reason::kShapeInvalid,
              absl::StrCat("has ", sx.size() - 2, " spatial dimensions; dy has ", c.stride.size()));
    return std::nullopt;
  }
  const int64_t channels = sx[1];
  const int64_t out = c.transposed ? sw[1] * c.groups : sw[0];
  const int64_t expected = c.transposed ? sw[0] : sw[1] * c.groups;
  if (channels == 0 || out == 0 || channels != expected || channels % c.groups != 0 ||
      out % c.groups != 0) {
    check.Bad(w, Reason::kShapeInvalid,
              absl::StrCat("does not fit ", channels, " channels in ", c.groups, " groups"));
    return std::nullopt;
  }
  Extents y = {sx[0], out};
  for (size_t i = 0; i + 2 < sx.size(); ++i) {
    const int64_t kernel = sw[i + 2], size = sx[i + 2];
    // Extents are below 2^48, but stride, padding and dilation are any number: no step may wrap.
    const auto reach = CheckedMul(c.dilation[i], kernel - 1);
    const auto span = reach ? CheckedAdd(*reach, 1) : std::nullopt;
    const auto pad = CheckedMul(c.padding[i], 2);
    std::optional<int64_t> extent;
    if (kernel < 1 || !span || !pad) {
      extent = 0;
    } else if (c.transposed) {
      const auto spread = CheckedMul(size - 1, c.stride[i]);
      const auto sum = spread ? CheckedAdd(*spread, *span) : std::nullopt;
      const auto padded = sum ? CheckedAdd(*sum, c.output_padding[i]) : std::nullopt;
      extent = padded ? CheckedAdd(*padded, -*pad) : std::nullopt;
    } else if (const auto room = CheckedAdd(size, *pad); room) {
      extent = *room < *span ? 0 : (*room - *span) / c.stride[i] + 1;
    }
    if (!extent || *extent < 1 || *extent > kMaxExtent) {
      check.Bad(w, Reason::kShapeInvalid,
                absl::StrCat("of extent ", kernel, " leaves no output of ", size,
                             " in spatial dimension ", i));
      return std::nullopt;
    }
    y.push_back(*extent);
  }
  return y;
}

void InferForward(Check& check) {
  const auto y = ForwardShape(check, 0, 1);
  if (!y) return;
  check.Dtype(2, check.dtype(0));
  check.Shape(2, {(*y)[1]});
  check.Output(3, check.dtype(0), *y);
}

void Typed(Check& check, int place) {
  if (check.dtype(place) == DType::kUnspecified) {
    check.Bad(place, Reason::kShapeInvalid, "needs a shape: dy does not tell it");
  }
}

void InferInputGradient(Check& check) {
  Typed(check, 2);
  if (!check.ok()) return;
  const auto y = ForwardShape(check, 2, 1);
  if (!y) return;
  check.Dtype(0, check.dtype(2));
  check.Shape(0, *y);
}

void InferWeightGradient(Check& check) {
  Typed(check, 2);
  if (!check.ok()) return;
  const auto y = ForwardShape(check, 0, 2);
  if (!y) return;
  check.Dtype(1, check.dtype(0));
  check.Shape(1, *y);
  check.Output(3, check.dtype(0), {(*y)[1]});
}

template <class M>
void ReadPooling(const M& m, Reader& r) {
  PoolingAttributes p;
  p.kind = r.Enum("kind", m.kind(), v1::POOLING_KIND_MAX, v1::PoolingKind_IsValid);
  p.kernel.assign(m.kernel().begin(), m.kernel().end());
  const int spatial = static_cast<int>(p.kernel.size());
  if (spatial < 1 || spatial > 3) r.Bad("kernel", "needs 1 to 3 numbers");
  p.stride = m.stride().empty() ? p.kernel : r.List("stride", m.stride(), spatial, 1);
  p.padding = r.List("padding", m.padding(), spatial, 0);
  p.dilation = r.List("dilation", m.dilation(), spatial, 1);
  p.ceil_mode = m.ceil_mode();
  p.count_include_pad = !m.has_count_include_pad() || m.count_include_pad();
  p.divisor_override = m.divisor_override();
  if (m.has_divisor_override() && m.divisor_override() == 0) r.Bad("divisor_override", "is 0");
  for (int i = 0; i < spatial; ++i) {
    if (p.kernel[i] < 1) r.Bad("kernel", "is not positive");
    if (p.stride[i] < 1) r.Bad("stride", "is not positive");
    if (p.dilation[i] < 1) r.Bad("dilation", "is not positive");
    if (p.dilation[i] != 1 && p.kind != v1::POOLING_KIND_MAX) r.Bad("dilation", "is for max");
    if (p.padding[i] < 0 || p.padding[i] > p.kernel[i] / 2) {
      r.Bad("padding", "is not between 0 and half of the kernel");
    }
  }
  r.out().spec.attributes = p;
}

void DecodePooling(const v1::Operation& operation, Reader& r) {
  const v1::Pooling& m = operation.pooling();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("indices", m.has_indices(), m.indices());
  ReadPooling(m, r);
}

void DecodePoolingGradient(const v1::Operation& operation, Reader& r) {
  const v1::PoolingGradient& m = operation.pooling_gradient();
  r.In("dy", m.has_dy(), m.dy());
  const bool needs_indices = m.kind() != v1::POOLING_KIND_AVG;
  r.Add("indices", m.has_indices(), m.indices(), Use::kIn, needs_indices);
  r.Out("dx", m.has_dx(), m.dx());
  ReadPooling(m, r);
}

std::optional<Extents> PooledShape(Check& check, int x) {
  const auto& p = check.attributes<PoolingAttributes>();
  const int spatial = static_cast<int>(p.kernel.size());
  check.Floating(x);
  check.Rank(x, spatial + 2, spatial + 2);
  if (!check.ok() || spatial == 0) return std::nullopt;
  const Extents& sx = check.shape(x);
  Extents y = {sx[0], sx[1]};
  for (int i = 0; i < spatial; ++i) {
    const int64_t size = sx[i + 2];
    const auto reach = CheckedMul(p.dilation[i], p.kernel[i] - 1);
    const int64_t room =
        size + 2 * std::min(p.padding[i], kMaxExtent) - 1 - reach.value_or(INT64_MAX / 2);
    if (p.kernel[i] < 1 || p.stride[i] < 1 || size < 1 || room < 0) {
      check.Bad(x, Reason::kShapeInvalid,
                absl::StrCat("is smaller than the kernel in spatial dimension ", i));
      return std::nullopt;
    }
    const int64_t stride = std::min(p.stride[i], kMaxExtent);
    int64_t extent = (room + (p.ceil_mode ? stride - 1 : 0)) / stride + 1;
    // A window that starts in the right padding is dropped.
    if (p.ceil_mode && (extent - 1) * stride >= size + p.padding[i]) --extent;
    y.push_back(extent);
  }
  return y;
}

void InferPooling(Check& check) {
  const auto y = PooledShape(check, 0);
  if (!y) return;
  check.Output(1, check.dtype(0), *y);
  check.Output(2, DType::kS64, *y);
  if (check.has(2) && check.attributes<PoolingAttributes>().kind != v1::POOLING_KIND_MAX) {
    check.Bad(2, Reason::kArgumentInvalid, "belong to max");
  }
}

void InferPoolingGradient(Check& check) {
  Typed(check, 2);
  if (!check.ok()) return;
  const auto y = PooledShape(check, 2);
  if (!y) return;
  check.Dtype(0, check.dtype(2));
  check.Shape(0, *y);
  check.Dtype(1, DType::kS64);
  check.Shape(1, *y);
}

constexpr Family kFamilies[] = {
    {OpKind::kConvolutionForward, "convolution_forward", DecodeForward, InferForward},
    {OpKind::kConvolutionInputGradient, "convolution_input_gradient", DecodeInputGradient,
     InferInputGradient},
    {OpKind::kConvolutionWeightGradient, "convolution_weight_gradient", DecodeWeightGradient,
     InferWeightGradient},
    {OpKind::kPooling, "pooling", DecodePooling, InferPooling},
    {OpKind::kPoolingGradient, "pooling_gradient", DecodePoolingGradient, InferPoolingGradient},
};

}  // namespace

absl::Span<const Family> ConvolutionFamilies() { return kFamilies; }

}  // namespace backendd
