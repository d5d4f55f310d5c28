// quantize, dequantize, quantized_linear.
#include <cmath>

#include "shared/operation/family.h"

namespace backendd {
namespace {

bool Code(DType dtype) {
  return dtype == DType::kS8 || dtype == DType::kU8 || dtype == DType::kS32;
}

std::pair<int64_t, int64_t> Range(DType dtype) {
  if (dtype == DType::kU8) return {0, 255};
  if (dtype == DType::kS8) return {-128, 127};
  return {INT32_MIN, INT32_MAX};
}

void CheckScale(Reader& r, absl::string_view name, double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    r.Bad(name, absl::StrCat("is ", scale, "; it must be above 0 and finite"));
  }
}

void CheckZeroPoint(Check& check, absl::string_view name, int64_t zero_point, DType dtype) {
  const auto [low, high] = Range(dtype);
  if (zero_point < low || zero_point > high) {
    check.BadAttribute(name, absl::StrCat("is ", zero_point, "; allowed: ", low, " to ", high));
  }
}

// As many zero points as scales; none: zeros.
Extents ZeroPoints(Reader& r, absl::string_view name,
                   const google::protobuf::RepeatedField<int64_t>& given, size_t scales) {
  if (given.empty()) return Extents(scales, 0);
  if (static_cast<size_t>(given.size()) != scales) {
    r.Bad(name, absl::StrCat("has ", given.size(), " numbers for ", scales, " scales"));
    return Extents(scales, 0);
  }
  return Extents(given.begin(), given.end());
}

template <class Message>
void Grid(const Message& m, Reader& r) {
  QuantizeAttributes a;
  a.scale.assign(m.scale().begin(), m.scale().end());
  for (double scale : a.scale) CheckScale(r, "scale", scale);
  if (a.scale.empty()) r.Bad("scale", "is missing");
  a.zero_point = ZeroPoints(r, "zero_point", m.zero_point(), a.scale.size());
  if (m.has_axis()) a.axis = r.Dim("axis", m.axis(), r.type(0).rank());
  r.out().spec.attributes = std::move(a);
}

void DecodeQuantize(const v1::Operation& operation, Reader& r) {
  const v1::Quantize& m = operation.quantize();
  r.In("x", m.has_x(), m.x());
  r.Out("q", m.has_q(), m.q());
  Grid(m, r);
}

void DecodeDequantize(const v1::Operation& operation, Reader& r) {
  const v1::Dequantize& m = operation.dequantize();
  r.In("q", m.has_q(), m.q());
  r.Out("y", m.has_y(), m.y());
  Grid(m, r);
}

// The codes at one place, f32 at the other.
void InferGrid(Check& check, int codes, int floats) {
  const auto& a = check.attributes<QuantizeAttributes>();
  if (!Code(check.dtype(codes))) {
    check.Bad(codes, Reason::kDtypeInvalid,
              absl::StrCat("is ", Name(check.dtype(codes)), "; allowed: s8, u8, s32"));
    return;
  }
  const Extents& shape = check.shape(0);
  const int64_t wanted = a.axis < 0                                    ? 1
                         : a.axis < static_cast<int64_t>(shape.size()) ? shape[a.axis]
                                                                       : 1;
  if (static_cast<int64_t>(a.scale.size()) != wanted) {
    check.BadAttribute("scale", absl::StrCat("has ", a.scale.size(), " numbers for ", wanted));
  }
  for (int64_t zero_point : a.zero_point) {
    CheckZeroPoint(check, "zero_point", zero_point, check.dtype(codes));
  }
  check.Output(1, check.dtype(1) == DType::kUnspecified ? DType::kF32 : check.dtype(1), shape);
  check.Dtype(floats, DType::kF32);
}

void DecodeLinear(const v1::Operation& operation, Reader& r) {
  const v1::QuantizedLinear& m = operation.quantized_linear();
  r.In("x", m.has_x(), m.x());
  r.In("w", m.has_w(), m.w());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("x_scale_out", m.has_x_scale_out(), m.x_scale_out());
  r.MaybeOut("x_zero_point_out", m.has_x_zero_point_out(), m.x_zero_point_out());
  QuantizedLinearAttributes a;
  a.form =
      r.Enum("form", m.form(), v1::QUANTIZED_LINEAR_FORM_STATIC, v1::QuantizedLinearForm_IsValid);
  a.relu = m.relu();
  a.reduce_range = m.reduce_range();
  a.w_scale.assign(m.w_scale().begin(), m.w_scale().end());
  if (a.w_scale.empty()) r.Bad("w_scale", "is missing");
  for (double scale : a.w_scale) CheckScale(r, "w_scale", scale);
  a.w_zero_point = ZeroPoints(r, "w_zero_point", m.w_zero_point(), a.w_scale.size());
  if (a.form == v1::QUANTIZED_LINEAR_FORM_STATIC) {
    a.x_scale = m.x_scale();
    a.y_scale = m.y_scale();
    a.x_zero_point = m.x_zero_point();
    a.y_zero_point = m.y_zero_point();
    CheckScale(r, "x_scale", a.x_scale);
    CheckScale(r, "y_scale", a.y_scale);
  }
  r.out().spec.attributes = std::move(a);
}

void InferLinear(Check& check) {
  enum { kX, kW, kBias, kY, kXScale, kXZeroPoint };
  const auto& a = check.attributes<QuantizedLinearAttributes>();
  const bool dynamic = a.form == v1::QUANTIZED_LINEAR_FORM_DYNAMIC;
  const DType x = check.dtype(kX);
  if (dynamic) {
    check.Dtype(kX, DType::kF32);
  } else if (x != DType::kU8 && x != DType::kS8) {
    check.Bad(kX, Reason::kDtypeInvalid, absl::StrCat("is ", Name(x), "; allowed: u8, s8"));
  }
  check.Dtype(kW, DType::kS8);
  check.Rank(kX, 1, kMaxRank);
  check.Rank(kW, 2, 2);
  if (!check.ok()) return;
  const int64_t n = check.shape(kW)[0], k = check.shape(kW)[1];
  Extents y = check.shape(kX);
  if (y.back() != k) {
    check.Bad(kX, Reason::kShapeInvalid, absl::StrCat("has rows of ", y.back(), "; w has ", k));
  }
  y.back() = n;
  if (a.w_scale.size() != 1 && static_cast<int64_t>(a.w_scale.size()) != n) {
    check.BadAttribute("w_scale",
                       absl::StrCat("has ", a.w_scale.size(), " numbers for ", n, " rows"));
  }
  for (int64_t zero_point : a.w_zero_point) {
    CheckZeroPoint(check, "w_zero_point", zero_point, DType::kS8);
  }
  check.Dtype(kBias, DType::kF32);
  check.Shape(kBias, {n});
  DType to = check.dtype(kY);
  if (dynamic) {
    to = DType::kF32;
  } else if (to != DType::kS8) {
    to = DType::kU8;
  }
  check.Output(kY, to, y);
  if (!dynamic) {
    CheckZeroPoint(check, "x_zero_point", a.x_zero_point, x);
    CheckZeroPoint(check, "y_zero_point", a.y_zero_point, to);
    if (check.has(kXScale) || check.has(kXZeroPoint)) {
      check.BadAttribute("x_scale_out", "is chosen by the dynamic form only");
    }
  }
  check.Output(kXScale, DType::kF64, {1});
  check.Output(kXZeroPoint, DType::kS64, {1});
}

constexpr Family kFamilies[] = {
    {OpKind::kQuantize, "quantize", DecodeQuantize, [](Check& check) { InferGrid(check, 1, 0); }},
    {OpKind::kDequantize, "dequantize", DecodeDequantize,
     [](Check& check) { InferGrid(check, 0, 1); }},
    {OpKind::kQuantizedLinear, "quantized_linear", DecodeLinear, InferLinear},
};

}  // namespace

absl::Span<const Family> QuantizedFamilies() { return kFamilies; }

}  // namespace backendd
