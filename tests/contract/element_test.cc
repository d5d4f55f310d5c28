// Elementwise operations, random draws, optimizers, transforms and refusals.
#include <cmath>
#include <limits>
#include <numbers>

#include "tests/contract/harness.h"

namespace backendd::worker {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class Elements : public DeviceContract {};

TEST_P(Elements, BinaryBroadcastsAndNaNWinsInMaximum) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    v1::Operation op;
    op.mutable_binary()->set_function(v1::BINARY_FUNCTION_MAX);
    const Value a = MakeValue(dtype, {2, 1}, {1, kNaN}), b = MakeValue(dtype, {3}, {0, 2, kNaN});
    EXPECT_TRUE(Near(Run(op, {{"a", a}, {"b", b}}, {{"y", {}}})["y"],
                     MakeValue(dtype, {2, 3}, {1, 2, kNaN, kNaN, kNaN, kNaN}), 0));
    op.mutable_binary()->set_function(v1::BINARY_FUNCTION_SUB);
    op.mutable_binary()->set_alpha(2);
    EXPECT_TRUE(
        Near(Run(op, {{"a", MakeValue(dtype, {2}, {5, 7})}, {"b", MakeValue(dtype, {}, {3})}},
                 {{"y", {}}})["y"],
             MakeValue(dtype, {2}, {-1, 1}), 0));
  }
}

TEST_P(Elements, WhereChoosesThroughStrides) {
  v1::Operation op;
  op.mutable_where();
  const Value condition = MakeValue(DType::kBool, {2, 1}, {1, 0});
  const Value a = WithStrides(MakeValue(DType::kF32, {2, 2}, {1, 2, 3, 4}), {1, 2});
  EXPECT_TRUE(
      Near(Run(op, {{"condition", condition}, {"a", a}, {"b", MakeValue(DType::kF32, {}, {9})}},
               {{"y", {}}})["y"],
           MakeValue(DType::kF32, {2, 2}, {1, 2, 9, 9}), 0));
}

TEST_P(Elements, UnaryFunctionsFollowTheirEdges) {
  v1::Operation op;
  op.mutable_unary()->set_function(v1::UNARY_FUNCTION_LOG);
  const Value x = MakeValue(DType::kF64, {4}, {0, 1, -1, kInf});
  EXPECT_TRUE(Near(Run(op, {{"x", x}}, {{"y", {}}})["y"],
                   MakeValue(DType::kF64, {4}, {-kInf, 0, kNaN, kInf}), 0));
}

TEST_P(Elements, UniformDrawsAreThoseOfPhiloxAndMoveTheStateByBlocks) {
  v1::Operation op;
  op.mutable_random();
  const Value rng = MakeValue(DType::kU64, {2}, {0, 0});
  const Result first = Run(op, {{"rng", rng}}, {{"y", MakeValue(DType::kF64, {6})}});
  // Known answers of Philox 4x32-10, key 0, counter 0.
  const double known[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(first["y"].at(i), std::floor(known[i] / 256) * 0x1p-24) << i;
  }
  EXPECT_EQ(first["rng"].at(1), 2);
  const Result later =
      Run(op, {{"rng", MakeValue(DType::kU64, {2}, {0, 1})}}, {{"y", MakeValue(DType::kF64, {2})}});
  EXPECT_EQ(later["y"].at(0), first["y"].at(4));
}

TEST_P(Elements, NormalDrawsHaveTheirMeanAndDeviation) {
  v1::Operation op;
  op.mutable_random()->set_distribution(v1::DISTRIBUTION_NORMAL);
  op.mutable_random()->set_mean(3);
  op.mutable_random()->set_std(2);
  const Value y = Run(op, {{"rng", MakeValue(DType::kU64, {2}, {7, 0})}},
                      {{"y", MakeValue(DType::kF32, {20000})}})["y"];
  double sum = 0, squares = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    sum += y.at(i);
    squares += y.at(i) * y.at(i);
  }
  const double mean = sum / y.size();
  EXPECT_NEAR(mean, 3, 0.08);
  EXPECT_NEAR(std::sqrt(squares / y.size() - mean * mean), 2, 0.08);
}

TEST_P(Elements, DropoutKeepsWhatItsMaskSaysAndItsGradientFollowsTheMask) {
  v1::Operation op, backward;
  op.mutable_dropout()->set_p(0.25);
  backward.mutable_dropout_gradient()->set_p(0.25);
  const Value x = MakeValue(DType::kF64, {1000}, std::vector<double>(1000, 3));
  const Result f =
      Run(op, {{"x", x}, {"rng", MakeValue(DType::kU64, {2}, {1, 0})}}, {{"y", {}}, {"mask", {}}});
  int kept = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool keep = f["mask"].at(i) != 0;
    kept += keep;
    EXPECT_NEAR(f["y"].at(i), keep ? 4 : 0, 1e-12);
  }
  EXPECT_NEAR(kept, 750, 60);
  EXPECT_TRUE(Near(Run(backward, {{"dy", x}, {"mask", f["mask"]}}, {{"dx", {}}})["dx"], f["y"], 4));
}

TEST_P(Elements, AdamAndSgdTakeTheStepsOfTheirDefinitions) {
  v1::Operation adam, sgd;
  adam.mutable_adam()->set_weight_decay(0.1);
  adam.mutable_adam()->set_decoupled(true);
  for (DType dtype : {DType::kF32, DType::kF64}) {
    auto one = [dtype](double v) { return MakeValue(dtype, {1}, {v}); };
    const Result a = Run(adam,
                         {{"param", one(2)},
                          {"grad", one(0.5)},
                          {"exp_avg", one(0.1)},
                          {"exp_avg_sq", one(0.2)},
                          {"step", MakeValue(DType::kS64, {1}, {4})},
                          {"lr", MakeValue(DType::kF32, {1}, {0.5})}},
                         {});
    const double m = 0.9 * 0.1 + 0.1 * 0.5, v = 0.999 * 0.2 + 0.001 * 0.25;
    const double expected = 2 * (1 - 0.05) - 0.5 * (m / (1 - std::pow(0.9, 5))) /
                                                 (std::sqrt(v / (1 - std::pow(0.999, 5))) + 1e-8);
    EXPECT_TRUE(Near(a["param"], one(expected), 2));
    EXPECT_TRUE(Near(a["exp_avg"], one(m), 1));
    EXPECT_EQ(a["step"].at(0), 5);
    sgd.mutable_sgd()->set_momentum(0.5);
    sgd.mutable_sgd()->set_nesterov(true);
    const Result s = Run(sgd,
                         {{"param", one(2)},
                          {"grad", one(1)},
                          {"momentum_buffer", one(4)},
                          {"lr", MakeValue(DType::kF32, {1}, {0.25})}},
                         {});
    EXPECT_TRUE(Near(s["param"], one(2 - 0.25 * (1 + 0.5 * 3)), 2));
  }
}

TEST_P(Elements, TransformsGiveTheSumsOfTheirDefinitionThroughPaddingAndStrides) {
  v1::Operation op;
  op.mutable_fft()->set_kind(v1::FFT_KIND_C2C_FORWARD);
  op.mutable_fft()->add_dims(0);
  op.mutable_fft()->add_n(6);
  op.mutable_fft()->set_rigor(v1::FFT_RIGOR_MEASURE);
  for (DType dtype : {DType::kC64, DType::kC128}) {
    const Value x = RandomValue(dtype, {5, 2}, 1);
    Value expected = MakeValue(dtype, {6, 2});
    for (int k = 0; k < 6; ++k) {
      for (int j = 0; j < 5; ++j) {
        for (int c = 0; c < 2; ++c) {
          expected.data[k * 2 + c] +=
              x.data[j * 2 + c] * std::polar(1.0, -2 * std::numbers::pi * j * k / 6);
        }
      }
    }
    Value y = MakeValue(dtype, {6, 2});
    y.strides = {1, 7};
    const Result result = Run(op, {{"x", WithStrides(x, {1, 6})}}, {{"y", y}});
    EXPECT_TRUE(Near(result["y"], expected, 12));
    EXPECT_EQ(result.choice.library, "fftw");
  }
}

TEST_P(Elements, WhatNoShapeOrNumberAllowsIsRefusedWithItsReason) {
  v1::Operation op;
  op.mutable_binary();
  const Value a = MakeValue(DType::kF32, {2}), b = MakeValue(DType::kF32, {3});
  EXPECT_EQ(Refused(op, {{"a", a}, {"b", b}}, {{"y", {}}}).at(0), Reason::kShapeInvalid);
  EXPECT_EQ(Refused(op, {{"a", a}, {"b", As(a, DType::kF64)}}, {{"y", {}}}).at(0),
            Reason::kDtypeInvalid);
  EXPECT_EQ(Refused(op, {{"a", a}}, {{"y", {}}}).at(0), Reason::kArgumentInvalid);
  Value overlapping = MakeValue(DType::kF32, {2});
  overlapping.strides = {0};
  EXPECT_EQ(Refused(op, {{"a", a}, {"b", a}}, {{"y", overlapping}}).at(0), Reason::kOverlap);
  op.mutable_binary()->set_function(static_cast<v1::BinaryFunction>(77));
  EXPECT_EQ(Refused(op, {{"a", a}, {"b", a}}, {{"y", {}}}).at(0), Reason::kArgumentInvalid);
}

INSTANTIATE_TEST_SUITE_P(Devices, Elements, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
