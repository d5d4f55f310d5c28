// einsum at the seam: recorded vectors, and a sum over all indices for anything else.
#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

using Number = std::complex<double>;
using ::testing::Contains;
using ::testing::HasSubstr;

v1::Operation Einsum(const std::string& equation) {
  v1::Operation operation;
  operation.mutable_einsum()->set_equation(equation);
  return operation;
}

Operands Inputs(const std::vector<Value>& values) {
  Operands operands;
  for (size_t i = 0; i < values.size(); ++i) {
    operands.emplace_back("x." + std::to_string(i), values[i]);
  }
  return operands;
}

// By the definition: every assignment of all labels. No ellipsis; letters only.
std::vector<Number> Reference(const std::string& equation, const std::vector<Value>& values) {
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  const std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < terms.size(); ++i) {
    for (size_t d = 0; d < terms[i].size(); ++d) {
      int64_t& extent = extents.emplace(terms[i][d], 1).first->second;
      if (values[i].shape[d] != 1) extent = values[i].shape[d];
    }
  }
  int64_t total = 1, results = 1;
  for (const auto& [label, extent] : extents) total *= extent;
  for (char label : sides[1]) results *= extents[label];
  std::vector<Number> y(results);
  for (int64_t n = 0; n < total; ++n) {
    std::map<char, int64_t> index;
    int64_t rest = n;
    for (const auto& [label, extent] : extents) {
      index[label] = rest % extent;
      rest /= extent;
    }
    Number product = 1;
    for (size_t i = 0; i < terms.size(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < terms[i].size(); ++d) {
        const int64_t extent = values[i].shape[d];
        at = at * extent + (extent == 1 ? 0 : index[terms[i][d]]);
      }
      product *= values[i].data[at];
    }
    int64_t at = 0;
    for (char label : sides[1]) at = at * extents[label] + index[label];
    y[at] += product;
  }
  return y;
}

class EinsumContract : public DeviceContract {};

TEST_P(EinsumContract, RecordedVectorsComeOutUnderEveryStrategy) {
  for (const char* strategy : {"", "auto", "greedy", "optimal"}) {
    TestFlags flags;
    if (*strategy == 0) {
      flags.Set("opt_einsum.enabled", false);
    } else {
      flags.Set("opt_einsum.strategy", std::string(strategy));
    }
    for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "einsum")) {
      SCOPED_TRACE(vector.id);
      if (!vector.error.empty()) {
        EXPECT_THAT(
            Refused(vector.operation, vector.inputs, {{"y", {}}}, flags),
            Contains(vector.error == "shape" ? Reason::kShapeInvalid : Reason::kArgumentInvalid));
        continue;
      }
      const Value& wanted = vector.outputs[0].second;
      EXPECT_TRUE(Near(Run(vector.operation, vector.inputs, {{"y", {}}}, flags)["y"], wanted, 8));
      Operands narrow = vector.inputs;
      for (auto& [name, value] : narrow) {
        value.dtype = IsComplex(value.dtype) ? DType::kC64 : DType::kF32;
      }
      EXPECT_TRUE(Near(Run(vector.operation, narrow, {{"y", {}}}, flags)["y"], wanted, 8));
    }
  }
}

TEST_P(EinsumContract, RandomEquationsEqualTheSumOverAllIndices) {
  std::mt19937 random(7);
  const DType dtypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
  for (int round = 0; round < 300; ++round) {
    const int operands = 1 + random() % 4;
    std::map<char, int64_t> extents;
    for (char label : std::string("abcdE")) extents[label] = 1 + random() % 4;
    std::string equation, used;
    std::vector<Value> values;
    const DType dtype = dtypes[round % 4];
    for (int i = 0; i < operands; ++i) {
      if (i > 0) equation += ',';
      Extents shape;
      std::string own;
      for (int d = random() % 4; d > 0; --d) {
        const char label = "abcdE"[random() % 5];
        // One extent of a label is the label's or 1; within one operand always the same.
        const bool again = own.find(label) != std::string::npos;
        int64_t extent = extents[label];
        if (again) {
          extent = shape[own.find(label)];
        } else if (random() % 8 == 0) {
          extent = 1;
        }
        shape.push_back(extent);
        own += label;
        if (used.find(label) == std::string::npos) used += label;
      }
      equation += own;
      Value value = RandomValue(dtype, shape, round * 10 + i);
      // Sometimes with holes, sometimes column by column.
      if (shape.size() == 2 && random() % 2 == 0) value.strides = {2, 2 * shape[0] + 1};
      values.push_back(std::move(value));
    }
    equation += "->";
    for (char label : used) {
      if (random() % 2 == 0) equation.insert(equation.find('>') + 1, 1, label);
    }
    SCOPED_TRACE(equation);
    const std::vector<Number> wanted = Reference(equation, values);
    const Value got = Run(Einsum(equation), Inputs(values), {{"y", {}}})["y"];
    ASSERT_EQ(got.size(), wanted.size());
    Value expected = got;
    expected.data = wanted;
    EXPECT_TRUE(Near(got, expected, 256));
  }
}

TEST_P(EinsumContract, TheStampTellsThePathAndWhoMultiplied) {
  const std::vector<Value> values = {RandomValue(DType::kF64, {30, 2}, 1),
                                     RandomValue(DType::kF64, {2, 40}, 2),
                                     RandomValue(DType::kF64, {40, 3}, 3)};
  const auto by = [&](const TestFlags& flags) {
    return Run(Einsum("ij,jk,kl->il"), Inputs(values), {{"y", {}}}, flags).choice.algorithm;
  };
  EXPECT_EQ(by(TestFlags()), "path (1,2) (0,1) optimal");
  EXPECT_EQ(by(TestFlags().Set("opt_einsum.strategy", std::string("greedy"))),
            "path (1,2) (0,1) greedy");
  EXPECT_EQ(by(TestFlags().Set("opt_einsum.enabled", false)), "path (0,1) (0,1) left to right");
  const Result two = Run(Einsum("ij,jk->ik"), Inputs({values[0], values[1]}), {{"y", {}}});
  EXPECT_EQ(two.choice.algorithm, "dgemm");
  EXPECT_EQ(two.choice.library, "openblas");
}

TEST_P(EinsumContract, TooManyOperandsForTheOptimumAreContractedGreedilyAndSaySo) {
  std::string equation;
  std::vector<Value> values;
  for (int i = 0; i < 16; ++i) {
    if (i > 0) equation += ',';
    equation += std::string(1, 'a' + i) + std::string(1, 'a' + i + 1);
    values.push_back(RandomValue(DType::kF64, {2, 2}, i));
  }
  TestFlags flags;
  flags.Set("opt_einsum.strategy", std::string("optimal"));
  const Result result = Run(Einsum(equation + "->aq"), Inputs(values), {{"y", {}}}, flags);
  Value expected = result["y"];
  expected.data = Reference(equation + "->aq", values);
  EXPECT_TRUE(Near(result["y"], expected, 1e6));
  ASSERT_EQ(result.choice.unmet.size(), 1u);
  EXPECT_EQ(result.choice.unmet[0].reason, "SHAPE");
  EXPECT_THAT(result.choice.algorithm, HasSubstr("greedy"));
}

TEST_P(EinsumContract, AResultOfTooManyDimensionsOnTheWayIsRefused) {
  std::string equation;
  std::vector<Value> values;
  for (int i = 0; i < 10; ++i) {
    equation += std::string(i > 0 ? "," : "") + char('a' + 2 * i) + char('b' + 2 * i);
    values.push_back(RandomValue(DType::kF64, {2, 2}, i));
  }
  for (int i = 0; i < 10; ++i) {  // every label once more, so that outer products come first
    equation += std::string(",") + char('a' + 2 * i) + char('b' + 2 * i);
    values.push_back(RandomValue(DType::kF64, {2, 2}, i));
  }
  TestFlags flags;
  flags.Set("opt_einsum.enabled", false);
  EXPECT_THAT(Refused(Einsum(equation + "->"), Inputs(values), {{"y", {}}}, flags),
              Contains(Reason::kSizeTooLarge));
  const Result clever = Run(Einsum(equation + "->"), Inputs(values), {{"y", {}}});
  EXPECT_TRUE(std::isfinite(clever["y"].at(0)));
}

INSTANTIATE_TEST_SUITE_P(Devices, EinsumContract, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
