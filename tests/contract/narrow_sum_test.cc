// Quantized, sparse and grouped products at the seam: recorded vectors, and exact references.
#include <cmath>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

using ::testing::Contains;

class NarrowSums : public DeviceContract {};

const Value* Find(const Operands& operands, const std::string& name) {
  for (const auto& [have, value] : operands) {
    if (have == name) return &value;
  }
  return nullptr;
}

Value Typed(const Value& value) {
  Value open;
  open.dtype = value.dtype;
  open.shape = value.shape;
  return open;
}

TEST_P(NarrowSums, QuantizingAndBackIsAsRecorded) {
  for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "quantize")) {
    SCOPED_TRACE(vector.id);
    Operands inputs = vector.inputs;
    if (!vector.error.empty()) {
      if (vector.id == "quantize/from_f64") inputs[0].second.dtype = DType::kF64;
      v1::Operation operation = vector.operation;
      if (operation.quantize().scale_size() == 0) operation.mutable_quantize()->add_scale(1);
      EXPECT_THAT(
          Refused(operation, inputs, {{"q", MakeValue(DType::kU8, {2})}}),
          Contains(vector.error == "dtype" ? Reason::kDtypeInvalid : Reason::kArgumentInvalid));
      continue;
    }
    const Value* const q = Find(vector.outputs, "q");
    const Value got = Run(vector.operation, inputs, {{"q", Typed(*q)}})["q"];
    const auto near = Near(got, *q, 0);
    if (vector.compare == "advisory") continue;
    EXPECT_TRUE(near);
    v1::Operation back;
    back.mutable_dequantize()->mutable_scale()->CopyFrom(vector.operation.quantize().scale());
    back.mutable_dequantize()->mutable_zero_point()->CopyFrom(
        vector.operation.quantize().zero_point());
    if (vector.operation.quantize().has_axis()) {
      back.mutable_dequantize()->set_axis(vector.operation.quantize().axis());
    }
    EXPECT_TRUE(
        Near(Run(back, {{"q", got}}, {{"y", {}}})["y"], *Find(vector.outputs, "back"), 4, 1));
  }
}

TEST_P(NarrowSums, ALinearLayerOfEightBitsRoundsAsItsEngineDoes) {
  for (const char* engine : {"x86", "onednn"}) {
    TestFlags flags;
    flags.Set("quantized.engine", std::string(engine));
    for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "quantized_linear")) {
      SCOPED_TRACE(vector.id + " " + engine);
      if (!vector.error.empty()) {
        v1::Operation operation = vector.operation;
        operation.mutable_quantized_linear()->add_w_scale(1);
        operation.mutable_quantized_linear()->set_x_scale(1);
        operation.mutable_quantized_linear()->set_y_scale(1);
        Operands inputs = vector.inputs;
        inputs.emplace_back("x", MakeValue(DType::kU8, {1, 8}));
        EXPECT_THAT(Refused(operation, inputs, {{"y", {}}}, flags),
                    Contains(Reason::kDtypeInvalid));
        continue;
      }
      const bool dynamic =
          vector.operation.quantized_linear().form() == v1::QUANTIZED_LINEAR_FORM_DYNAMIC;
      Operands outputs = {{"y", {}}};
      if (dynamic) {
        outputs.emplace_back("x_scale_out", Value());
        outputs.emplace_back("x_zero_point_out", Value());
      }
      const Result result = Run(vector.operation, vector.inputs, outputs, flags);
      const Value* wanted = Find(vector.outputs, std::string("y.") + engine);
      if (wanted == nullptr) wanted = Find(vector.outputs, "y");
      ASSERT_NE(wanted, nullptr);
      EXPECT_TRUE(Near(result["y"], *wanted, dynamic ? 10 : 0));
      if (dynamic) {
        EXPECT_NEAR(result["x_scale_out"].at(0), Find(vector.outputs, "x_scale")->at(0), 1e-9);
        EXPECT_EQ(result["x_zero_point_out"].at(0), Find(vector.outputs, "x_zero_point")->at(0));
      }
    }
  }
}

TEST_P(NarrowSums, SumsOfLongRowsAreExact) {
  constexpr int64_t kLong = 200000;  // 255 * 127 * kLong passes 32 bits
  Value x = MakeValue(DType::kU8, {1, kLong}), w = MakeValue(DType::kS8, {1, kLong});
  std::fill(x.data.begin(), x.data.end(), 255.0);
  std::fill(w.data.begin(), w.data.end(), 127.0);
  v1::Operation operation;
  v1::QuantizedLinear& q = *operation.mutable_quantized_linear();
  q.set_form(v1::QUANTIZED_LINEAR_FORM_STATIC);
  q.set_x_scale(1);
  q.add_w_scale(1);
  q.set_y_scale(255.0 * 127.0 * kLong / 200);
  EXPECT_EQ(Run(operation, {{"x", x}, {"w", w}}, {{"y", {}}})["y"].at(0), 200);
}

TEST_P(NarrowSums, TwoOfFourAreKeptFoundPackedAndMultipliedAsRecorded) {
  for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "sparse24")) {
    SCOPED_TRACE(vector.id);
    Operands inputs = vector.inputs, outputs;
    if (vector.operation.has_sparse24_matmul()) {
      if (Find(inputs, "values") == nullptr) continue;  // NaN beside zero: a rule of its own
      inputs.erase(inputs.begin());                     // a, expanded
    }
    for (const auto& [name, value] : vector.outputs) {
      if (name != "expanded" && name != "torch_meta") outputs.emplace_back(name, Value());
    }
    if (vector.id == "sparse24/compress_not_sparse") {
      EXPECT_THAT(Refused(vector.operation, inputs, outputs), Contains(Reason::kArgumentInvalid));
      continue;
    }
    const Result result = Run(vector.operation, inputs, outputs);
    for (const auto& [name, open] : outputs) {
      EXPECT_TRUE(Near(result[name], *Find(vector.outputs, name),
                       vector.operation.has_sparse24_matmul() ? 64 : 0))
          << name;
    }
  }
}

TEST_P(NarrowSums, AnIndexOfTwoInFourThatIsNoneIsFound) {
  v1::Operation operation;
  operation.mutable_sparse24_matmul();
  EXPECT_THAT(Refused(operation,
                      {{"values", MakeValue(DType::kF32, {1, 2}, {1, 2})},
                       {"indices", MakeValue(DType::kU8, {1, 2}, {0, 4})},
                       {"b", MakeValue(DType::kF32, {4, 1})}},
                      {{"y", {}}}),
              Contains(Reason::kIndexInvalid));
}

TEST_P(NarrowSums, GroupsOfProductsAreAsRecorded) {
  for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, "grouped_gemm")) {
    SCOPED_TRACE(vector.id);
    Operands outputs;
    for (const auto& [name, value] : vector.outputs) {
      if (name != "y_bf16") outputs.emplace_back(name, Value());
    }
    const Result result = Run(vector.operation, vector.inputs, outputs);
    for (const auto& [name, open] : outputs) {
      EXPECT_TRUE(Near(result[name], *Find(vector.outputs, name), 16)) << name;
    }
  }
}

TEST_P(NarrowSums, RaggedRowsWhoseOffsetsFallAreRefusedWhileRunning) {
  v1::Operation operation;
  operation.mutable_grouped_gemm();
  for (std::vector<double> offsets :
       {std::vector<double>{3, 2}, std::vector<double>{1, 6}, std::vector<double>{-1, 2}}) {
    EXPECT_THAT(Refused(operation,
                        {{"a", RandomValue(DType::kF32, {5, 2}, 1)},
                         {"b", RandomValue(DType::kF32, {2, 2, 3}, 2)},
                         {"offsets", MakeValue(DType::kS32, {2}, offsets)}},
                        {{"y", {}}}),
                Contains(Reason::kIndexInvalid));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, NarrowSums, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
