// activation, unary, binary, where, random, dropout, optimizers: one value out per value in.
#include <algorithm>

#include "shared/operation/family.h"

namespace backendd {
namespace {

void Like(Check& check, int place, int model) {
  check.Dtype(place, check.dtype(model));
  check.Shape(place, check.shape(model));
}

void DecodeActivation(const v1::Operation& operation, Reader& r) {
  const v1::Activation& m = operation.activation();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = ActivationAttributes{r.Enum(
      "function", m.function(), v1::ACTIVATION_FUNCTION_RELU, v1::ActivationFunction_IsValid)};
}

void DecodeActivationGradient(const v1::Operation& operation, Reader& r) {
  const v1::ActivationGradient& m = operation.activation_gradient();
  r.In("x", m.has_x(), m.x());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dx", m.has_dx(), m.dx());
  r.out().spec.attributes = ActivationAttributes{r.Enum(
      "function", m.function(), v1::ACTIVATION_FUNCTION_RELU, v1::ActivationFunction_IsValid)};
}

void DecodeUnary(const v1::Operation& operation, Reader& r) {
  const v1::Unary& m = operation.unary();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = UnaryAttributes{
      r.Enum("function", m.function(), v1::UNARY_FUNCTION_NEG, v1::UnaryFunction_IsValid)};
}

void InferMap(Check& check) {
  check.Floating(0);
  check.Output(1, check.dtype(0), check.shape(0));
}

void InferMapGradient(Check& check) {
  check.Floating(0);
  Like(check, 1, 0);
  check.Output(2, check.dtype(0), check.shape(0));
}

void DecodeBinary(const v1::Operation& operation, Reader& r) {
  const v1::Binary& m = operation.binary();
  r.In("a", m.has_a(), m.a());
  r.In("b", m.has_b(), m.b());
  r.Out("y", m.has_y(), m.y());
  BinaryAttributes b;
  b.function =
      r.Enum("function", m.function(), v1::BINARY_FUNCTION_ADD, v1::BinaryFunction_IsValid);
  if (m.has_alpha()) b.alpha = m.alpha();
  r.out().spec.attributes = b;
}

void InferBinary(Check& check) {
  const auto function = check.attributes<BinaryAttributes>().function;
  const bool compares = function == v1::BINARY_FUNCTION_EQ || function == v1::BINARY_FUNCTION_LT;
  check.Floating(0);
  check.Dtype(1, check.dtype(0));
  const auto shape = BroadcastShapes(check.shape(0), check.shape(1));
  if (!shape) {
    check.Bad(1, Reason::kShapeInvalid, "does not broadcast with a");
    return;
  }
  check.Output(2, compares ? DType::kBool : check.dtype(0), *shape);
}

void DecodeWhere(const v1::Operation& operation, Reader& r) {
  const v1::Where& m = operation.where();
  r.In("condition", m.has_condition(), m.condition());
  r.In("a", m.has_a(), m.a());
  r.In("b", m.has_b(), m.b());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = WhereAttributes{};
}

void InferWhere(Check& check) {
  check.Dtype(0, DType::kBool);
  check.Floating(1);
  check.Dtype(2, check.dtype(1));
  const auto ab = BroadcastShapes(check.shape(1), check.shape(2));
  const auto all = ab ? BroadcastShapes(*ab, check.shape(0)) : std::nullopt;
  if (!all) {
    check.Bad(2, Reason::kShapeInvalid, "does not broadcast with a and condition");
    return;
  }
  check.Output(3, check.dtype(1), *all);
}

// Random state: {seed, offset}.
void State(Check& check, int place) {
  check.Dtype(place, DType::kU64);
  check.Shape(place, {2});
}

void DecodeRandom(const v1::Operation& operation, Reader& r) {
  const v1::Random& m = operation.random();
  r.InOut("rng", m.has_rng(), m.rng());
  r.Out("y", m.has_y(), m.y());
  RandomAttributes a;
  a.distribution =
      r.Enum("distribution", m.distribution(), v1::DISTRIBUTION_UNIFORM, v1::Distribution_IsValid);
  a.low = m.low();
  if (m.has_high()) a.high = m.high();
  a.mean = m.mean();
  if (m.has_std()) a.std = m.std();
  if (!(a.low <= a.high)) r.Bad("low", "is above high");
  if (!(a.std >= 0)) r.Bad("std", "is negative");
  r.out().spec.attributes = a;
}

void InferRandom(Check& check) {
  State(check, 0);
  if (check.dtype(1) == DType::kUnspecified) {
    check.Bad(1, Reason::kDtypeInvalid, "needs a dtype");
    return;
  }
  check.Floating(1);
}

double Probability(double p, Reader& r) {
  if (!(p >= 0 && p <= 1)) r.Bad("p", absl::StrCat("is ", p, "; allowed: 0 to 1"));
  return p;
}

void DecodeDropout(const v1::Operation& operation, Reader& r) {
  const v1::Dropout& m = operation.dropout();
  r.In("x", m.has_x(), m.x());
  r.InOut("rng", m.has_rng(), m.rng());
  r.Out("y", m.has_y(), m.y());
  r.Out("mask", m.has_mask(), m.mask());
  r.out().spec.attributes = DropoutAttributes{Probability(m.p(), r)};
}

void InferDropout(Check& check) {
  check.Floating(0);
  State(check, 1);
  check.Output(2, check.dtype(0), check.shape(0));
  check.Output(3, DType::kBool, check.shape(0));
}

void DecodeDropoutGradient(const v1::Operation& operation, Reader& r) {
  const v1::DropoutGradient& m = operation.dropout_gradient();
  r.In("dy", m.has_dy(), m.dy());
  r.In("mask", m.has_mask(), m.mask());
  r.Out("dx", m.has_dx(), m.dx());
  r.out().spec.attributes = DropoutAttributes{Probability(m.p(), r)};
}

void InferDropoutGradient(Check& check) {
  check.Floating(0);
  check.Dtype(1, DType::kBool);
  check.Shape(1, check.shape(0));
  check.Output(2, check.dtype(0), check.shape(0));
}

// f32[1] and s64[1] that change from run to run.
void Scalar(Check& check, int place, DType dtype) {
  check.Dtype(place, dtype);
  check.Shape(place, {1});
}

void DecodeSgd(const v1::Operation& operation, Reader& r) {
  const v1::Sgd& m = operation.sgd();
  r.InOut("param", m.has_param(), m.param());
  r.In("grad", m.has_grad(), m.grad());
  r.MaybeInOut("momentum_buffer", m.has_momentum_buffer(), m.momentum_buffer());
  r.In("lr", m.has_lr(), m.lr());
  const SgdAttributes a{m.momentum(), m.dampening(), m.weight_decay(), m.nesterov()};
  if (a.nesterov && (!(a.momentum > 0) || a.dampening != 0)) {
    r.Bad("nesterov", "needs a momentum and no dampening");
  }
  if (a.momentum != 0 && !m.has_momentum_buffer()) {
    r.Bad("momentum", "is not 0 and there is no momentum_buffer");
  }
  r.out().spec.attributes = a;
}

// What an optimizer keeps of a 16-bit parameter is f32.
DType StateType(DType dtype) { return SizeOf(dtype) == 2 ? DType::kF32 : dtype; }

void InferSgd(Check& check) {
  check.Floating(0);
  Like(check, 1, 0);
  check.Dtype(2, StateType(check.dtype(0)));
  check.Shape(2, check.shape(0));
  Scalar(check, 3, DType::kF32);
}

void DecodeAdam(const v1::Operation& operation, Reader& r) {
  const v1::Adam& m = operation.adam();
  r.InOut("param", m.has_param(), m.param());
  r.In("grad", m.has_grad(), m.grad());
  r.InOut("exp_avg", m.has_exp_avg(), m.exp_avg());
  r.InOut("exp_avg_sq", m.has_exp_avg_sq(), m.exp_avg_sq());
  r.InOut("step", m.has_step(), m.step());
  r.In("lr", m.has_lr(), m.lr());
  AdamAttributes a;
  if (m.has_beta1()) a.beta1 = m.beta1();
  if (m.has_beta2()) a.beta2 = m.beta2();
  if (m.has_eps()) a.eps = m.eps();
  a.weight_decay = m.weight_decay();
  a.decoupled = m.decoupled();
  if (!(a.beta1 >= 0 && a.beta1 < 1)) r.Bad("beta1", "is not in [0, 1)");
  if (!(a.beta2 >= 0 && a.beta2 < 1)) r.Bad("beta2", "is not in [0, 1)");
  if (!(a.eps >= 0)) r.Bad("eps", "is negative");
  r.out().spec.attributes = a;
}

void InferAdam(Check& check) {
  check.Floating(0);
  Like(check, 1, 0);
  for (int state : {2, 3}) {
    check.Dtype(state, StateType(check.dtype(0)));
    check.Shape(state, check.shape(0));
  }
  Scalar(check, 4, DType::kS64);
  Scalar(check, 5, DType::kF32);
}

constexpr Family kFamilies[] = {
    {OpKind::kActivation, "activation", DecodeActivation, InferMap},
    {OpKind::kActivationGradient, "activation_gradient", DecodeActivationGradient,
     InferMapGradient},
    {OpKind::kUnary, "unary", DecodeUnary, InferMap},
    {OpKind::kBinary, "binary", DecodeBinary, InferBinary},
    {OpKind::kWhere, "where", DecodeWhere, InferWhere},
    {OpKind::kRandom, "random", DecodeRandom, InferRandom},
    {OpKind::kDropout, "dropout", DecodeDropout, InferDropout},
    {OpKind::kDropoutGradient, "dropout_gradient", DecodeDropoutGradient, InferDropoutGradient},
    {OpKind::kSgd, "sgd", DecodeSgd, InferSgd},
    {OpKind::kAdam, "adam", DecodeAdam, InferAdam},
};

}  // namespace

absl::Span<const Family> ElementFamilies() { return kFamilies; }

}  // namespace backendd
