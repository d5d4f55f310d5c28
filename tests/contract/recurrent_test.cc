// rnn and its gradient at the seam: recorded vectors, and differences of the forward.
#include <cmath>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

using ::testing::Contains;

bool OfGradient(const std::string& name) {
  return name == "dy" || name == "dh_n" || name == "dc_n";
}

// The same attributes for the way back.
v1::Operation Gradient(const v1::Rnn& rnn) {
  v1::Operation operation;
  v1::RnnGradient& g = *operation.mutable_rnn_gradient();
  g.set_mode(rnn.mode());
  g.set_num_layers(rnn.num_layers());
  g.set_bidirectional(rnn.bidirectional());
  g.set_batch_first(rnn.batch_first());
  *g.mutable_lengths() = rnn.lengths();
  g.set_proj_size(rnn.proj_size());
  return operation;
}

class Recurrent : public DeviceContract {};

TEST_P(Recurrent, RecordedVectorsComeOutForwardAndBackward) {
  for (const bool narrow : {false, true}) {
    for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "rnn")) {
      SCOPED_TRACE(vector.id);
      Operands forward, backward;
      for (auto [name, value] : vector.inputs) {
        if (narrow) value.dtype = DType::kF32;
        backward.emplace_back(name, value);
        if (!OfGradient(name)) forward.emplace_back(name, value);
      }
      if (!vector.error.empty()) {
        if (narrow) continue;
        // The recorded fault shall be the only one: weights of zeros for what the vector says.
        const int64_t gates = vector.operation.rnn().mode() == v1::RNN_MODE_GRU ? 3 : 1;
        forward.emplace_back("weights.0.weight_ih", MakeValue(DType::kF64, {gates * 2, 3}));
        forward.emplace_back("weights.0.weight_hh", MakeValue(DType::kF64, {gates * 2, 2}));
        if (vector.id == "rnn/state_dtype") {
          forward.emplace_back("h_0", MakeValue(DType::kF32, {1, 2, 2}));
        }
        EXPECT_THAT(Refused(vector.operation, forward, {{"y", {}}}),
                    Contains(vector.error == "shape"   ? Reason::kShapeInvalid
                             : vector.error == "dtype" ? Reason::kDtypeInvalid
                                                       : Reason::kArgumentInvalid));
        continue;
      }
      for (const bool way_back : {false, true}) {
        Operands outputs;
        for (const auto& [name, value] : vector.outputs) {
          const bool of_gradient = absl::StartsWith(name, "d");
          if (of_gradient == way_back &&
              (of_gradient || name == "y" || name == "h_n" || name == "c_n")) {
            outputs.emplace_back(name, Value());
          }
        }
        if (outputs.empty()) continue;
        const Result result = way_back ? Run(Gradient(vector.operation.rnn()), backward, outputs)
                                       : Run(vector.operation, forward, outputs);
        for (const auto& [name, wanted] : vector.outputs) {
          if (result.outputs.count(name) > 0) EXPECT_TRUE(Near(result[name], wanted, 8)) << name;
        }
      }
    }
  }
}

struct Case {
  v1::RnnMode mode;
  int64_t layers, projection;
  bool bidirectional, batch_first;
  std::vector<int64_t> lengths;
};

TEST_P(Recurrent, GradientsEqualDifferencesOfTheForward) {
  const Case cases[] = {
      {v1::RNN_MODE_RNN_TANH, 2, 0, true, false, {}},
      {v1::RNN_MODE_RNN_RELU, 1, 0, false, true, {2, 4, 1}},
      {v1::RNN_MODE_LSTM, 2, 0, true, true, {4, 1, 3}},
      {v1::RNN_MODE_LSTM, 2, 2, true, false, {}},
      {v1::RNN_MODE_LSTM, 1, 2, false, false, {3, 4, 2}},
      {v1::RNN_MODE_GRU, 2, 0, true, false, {1, 4, 2}},
      {v1::RNN_MODE_GRU, 1, 0, false, true, {}},
  };
  constexpr int64_t kSteps = 4, kBatch = 3, kInput = 2, kHidden = 3;
  for (const Case& c : cases) {
    SCOPED_TRACE(v1::RnnMode_Name(c.mode));
    v1::Operation forward;
    v1::Rnn& rnn = *forward.mutable_rnn();
    rnn.set_mode(c.mode);
    rnn.set_num_layers(c.layers);
    rnn.set_bidirectional(c.bidirectional);
    rnn.set_batch_first(c.batch_first);
    rnn.set_proj_size(c.projection);
    for (int64_t length : c.lengths) rnn.add_lengths(length);
    const bool lstm = c.mode == v1::RNN_MODE_LSTM;
    const int64_t gates = lstm ? 4 : c.mode == v1::RNN_MODE_GRU ? 3 : 1;
    const int64_t directions = c.bidirectional ? 2 : 1, sets = c.layers * directions;
    const int64_t out = c.projection > 0 ? c.projection : kHidden, rows = gates * kHidden;
    int seed = 1;
    auto random = [&](Extents shape) { return RandomValue(DType::kF64, shape, seed++); };
    Operands inputs;
    inputs.emplace_back("x", random(c.batch_first ? Extents{kBatch, kSteps, kInput}
                                                  : Extents{kSteps, kBatch, kInput}));
    inputs.emplace_back("h_0", random({sets, kBatch, out}));
    if (lstm) inputs.emplace_back("c_0", random({sets, kBatch, kHidden}));
    for (int64_t set = 0; set < sets; ++set) {
      const std::string at = "weights." + std::to_string(set) + ".";
      inputs.emplace_back(at + "weight_ih",
                          random({rows, set < directions ? kInput : directions * out}));
      inputs.emplace_back(at + "weight_hh", random({rows, out}));
      inputs.emplace_back(at + "bias_ih", random({rows}));
      inputs.emplace_back(at + "bias_hh", random({rows}));
      if (c.projection > 0) inputs.emplace_back(at + "weight_hr", random({out, kHidden}));
    }
    Operands results = {{"y", {}}, {"h_n", {}}};
    if (lstm) results.emplace_back("c_n", Value());
    const Result base = Run(forward, inputs, results);
    Operands cotangents, wanted;
    for (const auto& [name, open] : results) {
      cotangents.emplace_back("d" + name, random(base[name].shape));
    }
    for (const auto& [name, value] : inputs) wanted.emplace_back("d" + name, Value());
    Operands back = inputs;
    back.insert(back.end(), cotangents.begin(), cotangents.end());
    const Result gradient = Run(Gradient(rnn), back, wanted);
    auto total = [&](const Operands& at) {
      const Result result = Run(forward, at, results);
      double sum = 0;
      for (const auto& [name, weight] : cotangents) {
        const Value& value = result[name.substr(1)];
        for (size_t i = 0; i < value.size(); ++i) sum += value.at(i) * weight.at(i);
      }
      return sum;
    };
    for (size_t which = 0; which < inputs.size(); ++which) {
      for (size_t i = 0; i < inputs[which].second.size(); i += 3) {
        constexpr double kStep = 1e-5;
        Operands up = inputs, down = inputs;
        up[which].second.data[i] += kStep;
        down[which].second.data[i] -= kStep;
        const double difference = (total(up) - total(down)) / (2 * kStep);
        EXPECT_NEAR(gradient["d" + inputs[which].first].at(i), difference,
                    1e-5 * std::max(1.0, std::fabs(difference)))
            << inputs[which].first << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Recurrent, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
