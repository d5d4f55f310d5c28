// Gradients against differences of the forward, in double; f32 must agree with f64.
#include <cmath>

#include "tests/contract/harness.h"

namespace backendd::worker {
namespace {

class Gradient : public DeviceContract {
 protected:
  // d(sum of y dy) / d(input `name`), by central differences.
  Value Differences(const v1::Operation& forward, Operands inputs, const std::string& name,
                    const Value& dy, const Operands& more_outputs = {}) {
    constexpr double kStep = 1e-5;
    Operands outputs = {{"y", Value()}};
    outputs.insert(outputs.end(), more_outputs.begin(), more_outputs.end());
    auto loss = [&] {
      const Value y = Run(forward, inputs, outputs)["y"];
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y.at(i) * dy.at(i);
      return sum;
    };
    for (auto& [key, value] : inputs) {
      if (key != name) continue;
      Value result = MakeValue(value.dtype, value.shape);
      for (size_t i = 0; i < value.size(); ++i) {
        const std::complex<double> before = value.data[i];
        value.data[i] = before + kStep;
        const double up = loss();
        value.data[i] = before - kStep;
        const double down = loss();
        value.data[i] = before;
        result.data[i] = (up - down) / (2 * kStep);
      }
      return result;
    }
    ADD_FAILURE() << "no input " << name;
    return Value();
  }
  // In eps of double: 1e-6 or so, what differences are good for.
  static constexpr double kLoose = 1e10;
};

TEST_P(Gradient, ActivationsAgreeWithDifferences) {
  for (int f = v1::ACTIVATION_FUNCTION_RELU; f <= v1::ACTIVATION_FUNCTION_TANH; ++f) {
    v1::Operation forward, backward;
    forward.mutable_activation()->set_function(static_cast<v1::ActivationFunction>(f));
    backward.mutable_activation_gradient()->set_function(static_cast<v1::ActivationFunction>(f));
    Value x = RandomValue(DType::kF64, {3, 5}, f);
    for (auto& number : x.data) number += 1.0 / 97;  // off the kink of ReLU
    const Value dy = RandomValue(DType::kF64, {3, 5}, 7);
    const Value dx = Run(backward, {{"x", x}, {"dy", dy}}, {{"dx", Value()}})["dx"];
    EXPECT_TRUE(Near(dx, Differences(forward, {{"x", x}}, "x", dy), 1, kLoose)) << f;
    const Value narrow = Run(backward, {{"x", As(x, DType::kF32)}, {"dy", As(dy, DType::kF32)}},
                             {{"dx", Value()}})["dx"];
    EXPECT_TRUE(Near(narrow, dx, 2)) << f;
  }
}

TEST_P(Gradient, SoftmaxAgreesWithDifferencesAlongEveryDimension) {
  for (bool log : {false, true}) {
    for (int dim : {0, 1, 2}) {
      v1::Operation forward, backward;
      forward.mutable_softmax()->set_dim(dim);
      forward.mutable_softmax()->set_log(log);
      backward.mutable_softmax_gradient()->set_dim(dim);
      backward.mutable_softmax_gradient()->set_log(log);
      const Value x = RandomValue(DType::kF64, {2, 3, 4}, dim);
      const Value dy = RandomValue(DType::kF64, {2, 3, 4}, 9);
      const Value y = Run(forward, {{"x", x}}, {{"y", Value()}})["y"];
      const Value dx = Run(backward, {{"y", y}, {"dy", dy}}, {{"dx", Value()}})["dx"];
      EXPECT_TRUE(Near(dx, Differences(forward, {{"x", x}}, "x", dy), 1, kLoose));
    }
  }
}

TEST_P(Gradient, CrossEntropyAgreesWithDifferencesWithWeightsSmoothingAndIgnoredItems) {
  for (v1::LossReduction reduction :
       {v1::LOSS_REDUCTION_MEAN, v1::LOSS_REDUCTION_SUM, v1::LOSS_REDUCTION_NONE}) {
    v1::Operation forward, backward;
    forward.mutable_cross_entropy()->set_reduction(reduction);
    forward.mutable_cross_entropy()->set_label_smoothing(0.1);
    backward.mutable_cross_entropy_gradient()->set_reduction(reduction);
    backward.mutable_cross_entropy_gradient()->set_label_smoothing(0.1);
    const Value x = RandomValue(DType::kF64, {4, 3}, 1);
    const Value target = MakeValue(DType::kS64, {4}, {0, 2, -100, 1});
    const Value weight = MakeValue(DType::kF64, {3}, {1, 0.5, 2});
    const bool each = reduction == v1::LOSS_REDUCTION_NONE;
    const Value dy = each ? RandomValue(DType::kF64, {4}, 2) : MakeValue(DType::kF64, {}, {1.5});
    const Operands inputs = {{"x", x}, {"target", target}, {"weight", weight}};
    Operands with_dy = inputs;
    with_dy.emplace_back("dy", dy);
    const Value dx = Run(backward, with_dy, {{"dx", Value()}})["dx"];
    EXPECT_TRUE(Near(dx, Differences(forward, inputs, "x", dy), 1, kLoose));
  }
}

TEST_P(Gradient, AnIndexThatIsNoClassIsFoundByTheRun) {
  v1::Operation op;
  op.mutable_cross_entropy();
  const Value x = RandomValue(DType::kF32, {2, 3}, 1);
  const Value target = MakeValue(DType::kS64, {2}, {0, 3});
  const auto reasons = Refused(op, {{"x", x}, {"target", target}}, {{"y", Value()}});
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons[0], Reason::kIndexInvalid);
}

TEST_P(Gradient, LayerNormAgreesWithDifferences) {
  v1::Operation forward, backward;
  forward.mutable_layer_norm()->add_normalized_shape(5);
  backward.mutable_layer_norm_gradient()->add_normalized_shape(5);
  const Value x = RandomValue(DType::kF64, {3, 5}, 1), weight = RandomValue(DType::kF64, {5}, 2),
              bias = RandomValue(DType::kF64, {5}, 3), dy = RandomValue(DType::kF64, {3, 5}, 4);
  const Operands inputs = {{"x", x}, {"weight", weight}, {"bias", bias}};
  const Result f = Run(forward, inputs, {{"y", {}}, {"mean", {}}, {"rstd", {}}});
  const Result g =
      Run(backward,
          {{"x", x}, {"mean", f["mean"]}, {"rstd", f["rstd"]}, {"weight", weight}, {"dy", dy}},
          {{"dx", {}}, {"dweight", {}}, {"dbias", {}}});
  EXPECT_TRUE(Near(g["dx"], Differences(forward, inputs, "x", dy), 1, kLoose));
  EXPECT_TRUE(Near(g["dweight"], Differences(forward, inputs, "weight", dy), 1, kLoose));
  EXPECT_TRUE(Near(g["dbias"], Differences(forward, inputs, "bias", dy), 1, kLoose));
}

TEST_P(Gradient, BatchNormAgreesWithDifferencesInTraining) {
  v1::Operation forward, backward;
  forward.mutable_batch_norm()->set_training(true);
  backward.mutable_batch_norm_gradient()->set_training(true);
  const Value x = RandomValue(DType::kF64, {3, 2, 4}, 1), weight = RandomValue(DType::kF64, {2}, 2),
              bias = RandomValue(DType::kF64, {2}, 3), dy = RandomValue(DType::kF64, {3, 2, 4}, 4);
  const Operands inputs = {{"x", x}, {"weight", weight}, {"bias", bias}};
  const Result f = Run(forward, inputs, {{"y", {}}, {"mean", {}}, {"rstd", {}}});
  const Result g =
      Run(backward,
          {{"x", x}, {"mean", f["mean"]}, {"rstd", f["rstd"]}, {"weight", weight}, {"dy", dy}},
          {{"dx", {}}, {"dweight", {}}, {"dbias", {}}});
  EXPECT_TRUE(Near(g["dx"], Differences(forward, inputs, "x", dy), 1, kLoose));
  EXPECT_TRUE(Near(g["dweight"], Differences(forward, inputs, "weight", dy), 1, kLoose));
  EXPECT_TRUE(Near(g["dbias"], Differences(forward, inputs, "bias", dy), 1, kLoose));
}

TEST_P(Gradient, PoolingAgreesWithDifferences) {
  for (v1::PoolingKind kind : {v1::POOLING_KIND_MAX, v1::POOLING_KIND_AVG}) {
    v1::Operation forward, backward;
    auto fill = [kind](auto* m) {
      m->set_kind(kind);
      for (int64_t k : {3, 2}) m->add_kernel(k);
      for (int64_t s : {2, 1}) m->add_stride(s);
      for (int64_t p : {1, 0}) m->add_padding(p);
    };
    fill(forward.mutable_pooling());
    fill(backward.mutable_pooling_gradient());
    Value x = RandomValue(DType::kF64, {2, 2, 5, 4}, 1);
    for (size_t i = 0; i < x.size(); ++i) x.data[i] += 0.001 * i;  // no ties
    const bool max = kind == v1::POOLING_KIND_MAX;
    Operands outputs = {{"y", {}}};
    if (max) outputs.push_back({"indices", {}});
    const Result f = Run(forward, {{"x", x}}, outputs);
    const Value dy = RandomValue(DType::kF64, f["y"].shape, 2);
    Operands inputs = {{"dy", dy}};
    if (max) inputs.push_back({"indices", f["indices"]});
    const Value dx = Run(backward, inputs, {{"dx", MakeValue(DType::kF64, x.shape)}})["dx"];
    EXPECT_TRUE(Near(dx, Differences(forward, {{"x", x}}, "x", dy), 1, kLoose));
  }
}

struct Convolution {
  Extents x, w, stride, padding, dilation;
  int64_t groups = 1;
  bool transposed = false;
};

TEST_P(Gradient, ConvolutionAgreesWithDifferencesByEveryLibrary) {
  const Convolution cases[] = {
      {{2, 3, 6, 5}, {4, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {{1, 4, 7, 6}, {6, 2, 2, 3}, {2, 1}, {1, 2}, {1, 2}, 2},
      {{2, 2, 4, 4}, {2, 3, 3, 2}, {2, 2}, {1, 0}, {1, 1}, 1, true},
      {{2, 3, 7}, {2, 3, 3}, {2}, {1}, {1}},
      {{1, 2, 3, 4, 3}, {2, 2, 2, 2, 2}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
  };
  TestFlags off;
  off.Set("mkldnn.enabled", false);
  for (const Convolution& c : cases) {
    v1::Operation forward, by_input, by_weight;
    auto fill = [&c](auto* m) {
      for (int64_t v : c.stride) m->add_stride(v);
      for (int64_t v : c.padding) m->add_padding(v);
      for (int64_t v : c.dilation) m->add_dilation(v);
      m->set_groups(c.groups);
      m->set_transposed(c.transposed);
    };
    fill(forward.mutable_convolution_forward());
    fill(by_input.mutable_convolution_input_gradient());
    fill(by_weight.mutable_convolution_weight_gradient());
    const Value x = RandomValue(DType::kF64, c.x, 1), w = RandomValue(DType::kF64, c.w, 2);
    const int64_t channels = c.transposed ? c.w[1] * c.groups : c.w[0];
    const Value bias = RandomValue(DType::kF64, {channels}, 3);
    const Operands inputs = {{"x", x}, {"w", w}, {"bias", bias}};
    const Value y = Run(forward, inputs, {{"y", {}}})["y"];
    const Value dy = RandomValue(DType::kF64, y.shape, 4);
    const Value dx = Differences(forward, inputs, "x", dy),
                dw = Differences(forward, inputs, "w", dy);
    const Value dbias = Differences(forward, inputs, "bias", dy);
    for (DType dtype : {DType::kF64, DType::kF32}) {
      for (const TestFlags& flags : {TestFlags(), off}) {
        const double factor = dtype == DType::kF64 ? kLoose : 64;
        const double scale = static_cast<double>(w.size());
        const Value xs = As(x, dtype), ws = As(w, dtype), dys = As(dy, dtype);
        const Result f =
            Run(forward, {{"x", xs}, {"w", ws}, {"bias", As(bias, dtype)}}, {{"y", {}}}, flags);
        EXPECT_TRUE(Near(f["y"], y, scale, factor)) << f.choice.algorithm;
        const Result gx = Run(by_input, {{"dy", dys}, {"w", ws}},
                              {{"dx", As(MakeValue(dtype, c.x), dtype)}}, flags);
        EXPECT_TRUE(Near(gx["dx"], dx, scale, factor)) << gx.choice.algorithm;
        const Result gw = Run(by_weight, {{"x", xs}, {"dy", dys}},
                              {{"dw", MakeValue(dtype, c.w)}, {"dbias", {}}}, flags);
        EXPECT_TRUE(Near(gw["dw"], dw, scale * 4, factor)) << gw.choice.algorithm;
        EXPECT_TRUE(Near(gw["dbias"], dbias, scale, factor)) << gw.choice.algorithm;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Gradient, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
