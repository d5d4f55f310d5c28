// Products of narrow types: recorded vectors, exact integers, and 16-bit floats against the same
// operation in single precision, rounded once.
#include "server/worker/device/cpu/narrow.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

using ::testing::Contains;

class NarrowTypes : public DeviceContract {};

Value Open(DType dtype, const Extents& shape) {
  Value open;
  open.dtype = dtype;
  open.shape = shape;
  return open;
}

double Rounded(double value, DType dtype) {
  if (dtype == DType::kF16) return Half::FromDouble(value).ToFloat();
  if (dtype == DType::kBf16) return Bfloat16::FromDouble(value).ToFloat();
  return value;
}

// The bound of a product: its terms, each at its largest.
double Terms(const Operands& inputs) {
  double scale = static_cast<double>(inputs[0].second.shape.back());
  for (const auto& [name, value] : inputs) {
    double largest = 0;
    for (const auto& number : value.data) largest = std::max(largest, std::abs(number));
    scale *= largest;
  }
  return scale;
}

TEST_P(NarrowTypes, ProductsAreAsRecorded) {
  const std::vector<Vector> vectors = ReadVectors(BACKENDD_VECTORS, "gemm_narrow");
  ASSERT_FALSE(vectors.empty());
  for (const Vector& vector : vectors) {
    SCOPED_TRACE(vector.id);
    if (!vector.error.empty()) {
      EXPECT_THAT(
          Refused(vector.operation, vector.inputs, {{"y", {}}}),
          Contains(vector.error == "dtype" ? Reason::kDtypeInvalid : Reason::kShapeInvalid));
      continue;
    }
    const Value& exact = vector.outputs[0].second;
    for (const auto& [name, expected] : vector.outputs) {
      const DType dtype = expected.dtype == DType::kF64 ? DType::kF32 : expected.dtype;
      const Value y =
          Run(vector.operation, vector.inputs, {{"y", Open(dtype, expected.shape)}})["y"];
      if (!IsFloating(dtype) || dtype == DType::kF32) {
        EXPECT_TRUE(Near(y, exact, IsFloating(dtype) ? Terms(vector.inputs) : 0, 1)) << name;
        continue;
      }
      // One rounding.
      const double step = Epsilon(dtype) / 2;
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_LE(std::fabs(y.at(i) - exact.at(i)),
                  step * std::fabs(exact.at(i)) + 1e-6 * Terms(vector.inputs))
            << name << " " << i;
      }
    }
  }
}

TEST_P(NarrowTypes, IntegersTakeBatchesTransposesFactorsAndReluWithoutRounding) {
  // a [2, k, m] transposed, b [k, n], c [n], bias [n].
  constexpr int64_t kItems = 2, kM = 3, kN = 5, kK = 37;
  auto number = [](int64_t i, int64_t low) { return static_cast<double>((i * 97) % 256 + low); };
  for (DType left : {DType::kS8, DType::kU8}) {
    Value a = MakeValue(left, {kItems, kK, kM}), b = MakeValue(DType::kS8, {kK, kN});
    for (size_t i = 0; i < a.size(); ++i) a.data[i] = number(i, left == DType::kS8 ? -128 : 0);
    for (size_t i = 0; i < b.size(); ++i) b.data[i] = number(i + 11, -128);
    const Value c = MakeValue(DType::kS32, {kN}, {100000, -100000, 3, 4, 5});
    const Value bias = MakeValue(DType::kS32, {kN}, {-7, 70000, 0, 1, 2});
    v1::Operation op;
    op.mutable_gemm()->set_trans_a(v1::TRANSPOSE_T);
    op.mutable_gemm()->add_alpha(2);
    op.mutable_gemm()->add_beta(-3);
    op.mutable_gemm()->set_epilogue(v1::EPILOGUE_RELU);
    Value expected = MakeValue(DType::kS32, {kItems, kM, kN});
    for (int64_t item = 0; item < kItems; ++item) {
      for (int64_t i = 0; i < kM; ++i) {
        for (int64_t j = 0; j < kN; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < kK; ++l) {
            sum += a.at((item * kK + l) * kM + i) * b.at(l * kN + j);
          }
          expected.data[(item * kM + i) * kN + j] =
              std::max(0.0, 2 * sum - 3 * c.at(j) + bias.at(j));
        }
      }
    }
    const Value columns = WithStrides(b, {1, kK + 2});
    for (const Value& right : {b, columns}) {
      EXPECT_TRUE(
          Near(Run(op, {{"a", a}, {"b", right}, {"c", c}, {"bias", bias}}, {{"y", Value()}})["y"],
               expected, 0));
    }
  }
}

TEST_P(NarrowTypes, IntegersWithoutTermsAreTheBiasAndRefuseFractions) {
  const Value a = MakeValue(DType::kS8, {2, 0}), b = MakeValue(DType::kS8, {0, 2});
  const Value bias = MakeValue(DType::kS32, {2}, {7, -7});
  v1::Operation op;
  op.mutable_gemm();
  EXPECT_TRUE(Near(Run(op, {{"a", a}, {"b", b}, {"bias", bias}}, {{"y", Value()}})["y"],
                   MakeValue(DType::kS32, {2, 2}, {7, -7, 7, -7}), 0));
  const Operands plain = {{"a", a}, {"b", b}};
  std::vector<v1::Operation> bad(4);
  bad[0].mutable_gemm()->add_alpha(0.5);
  bad[1].mutable_gemm()->set_scale_b(2);
  bad[2].mutable_gemm()->set_epilogue(v1::EPILOGUE_GELU_ERF);
  bad[3].mutable_gemm()->set_accumulate(v1::ACCUMULATE_F32);
  for (const v1::Operation& operation : bad) {
    EXPECT_THAT(Refused(operation, plain, {{"y", {}}}), Contains(Reason::kArgumentInvalid))
        << operation.ShortDebugString();
  }
}

TEST_P(NarrowTypes, SumsOfNarrowFloatsStayInSinglePrecisionWhateverTheFlagSays) {
  TestFlags flags;
  flags.Set("mkldnn.matmul.fp32_precision", std::string("bf16"));
  const Value a = MakeValue(DType::kF16, {64, 64}, std::vector<double>(64 * 64, 1 + 1.0 / 512));
  const Value b = MakeValue(DType::kF16, {64, 64}, std::vector<double>(64 * 64, 1));
  v1::Operation op;
  op.mutable_gemm();
  const Result result = Run(op, {{"a", a}, {"b", b}}, {{"y", Open(DType::kF32, {64, 64})}}, flags);
  EXPECT_EQ(result["y"].at(0), 64.125);
  EXPECT_TRUE(result.choice.unmet.empty());
}

struct Widened {
  const char* name;
  v1::Operation operation;
  Operands inputs;
  std::string output;
};

std::vector<Widened> WidenedOperations() {
  auto x = [](Extents shape, int seed) { return RandomValue(DType::kF32, std::move(shape), seed); };
  std::vector<Widened> all(10);
  all[0] = {"gemm", {}, {{"a", x({5, 7}, 1)}, {"b", x({7, 3}, 2)}, {"bias", x({3}, 3)}}, "y"};
  all[0].operation.mutable_gemm()->set_epilogue(v1::EPILOGUE_GELU_ERF);
  all[1] = {
      "sdpa", {}, {{"q", x({2, 5, 4}, 1)}, {"k", x({2, 6, 4}, 2)}, {"v", x({2, 6, 3}, 3)}}, "y"};
  all[1].operation.mutable_sdpa();
  all[2] = {"softmax", {}, {{"x", x({3, 5}, 1)}}, "y"};
  all[2].operation.mutable_softmax()->set_dim(1);
  all[3] = {"convolution", {}, {{"x", x({1, 2, 5, 5}, 1)}, {"w", x({3, 2, 3, 3}, 2)}}, "y"};
  all[3].operation.mutable_convolution_forward();
  all[4] = {"activation", {}, {{"x", x({9}, 1)}}, "y"};
  all[4].operation.mutable_activation()->set_function(v1::ACTIVATION_FUNCTION_GELU_TANH);
  all[5] = {"reduction", {}, {{"x", x({4, 50}, 1)}}, "y"};
  all[5].operation.mutable_reduction()->set_kind(v1::REDUCTION_KIND_SUM);
  all[6] = {"binary", {}, {{"a", x({3, 1}, 1)}, {"b", x({4}, 2)}}, "y"};
  all[6].operation.mutable_binary()->set_function(v1::BINARY_FUNCTION_MUL);
  all[7] = {"einsum", {}, {{"x.0", x({3, 4}, 1)}, {"x.1", x({4, 5}, 2)}}, "y"};
  all[7].operation.mutable_einsum()->set_equation("ab,bc->ac");
  all[8] = {"unary", {}, {{"x", x({6, 2}, 1)}}, "y"};
  all[8].operation.mutable_unary()->set_function(v1::UNARY_FUNCTION_EXP);
  all[9] = {"grouped", {}, {{"a.0", x({3, 4}, 1)}, {"b.0", x({4, 5}, 2)}}, "y.0"};
  all[9].operation.mutable_grouped_gemm();
  return all;
}

TEST_P(NarrowTypes, SixteenBitOperationsAreTheSingleOnesRoundedOnce) {
  for (DType dtype : {DType::kF16, DType::kBf16}) {
    for (const Widened& each : WidenedOperations()) {
      SCOPED_TRACE(absl::StrCat(each.name, " ", Name(dtype)));
      Operands single = each.inputs, narrow;
      for (auto& [name, value] : single) {
        for (auto& number : value.data) number = Rounded(number.real(), dtype);
        narrow.emplace_back(name, As(value, dtype));
      }
      // Holes between the rows of the first.
      Value& first = narrow[0].second;
      if (first.shape.size() == 2) first = WithStrides(first, {first.shape[1] + 3, 1});
      Value expected = Run(each.operation, single, {{each.output, Value()}})[each.output];
      for (auto& number : expected.data) number = Rounded(number.real(), dtype);
      const Result got = Run(each.operation, narrow, {{each.output, Value()}});
      EXPECT_EQ(got[each.output].dtype, dtype);
      EXPECT_TRUE(Near(got[each.output], expected, 0));
    }
  }
}

TEST_P(NarrowTypes, AnUpdateOfSixteenBitsIsRoundedOnceAndTheChoiceSaysWidened) {
  v1::Operation op;
  op.mutable_sgd();
  const Result got = Run(op,
                         {{"param", MakeValue(DType::kBf16, {2}, {1, -2})},
                          {"grad", MakeValue(DType::kBf16, {2}, {1, 0.5})},
                          {"lr", MakeValue(DType::kF32, {1}, {0.25})}},
                         {});
  EXPECT_TRUE(Near(got["param"], MakeValue(DType::kBf16, {2}, {0.75, -2.125}), 0));
  EXPECT_TRUE(absl::StartsWith(got.choice.algorithm, "widened")) << got.choice.algorithm;
}

INSTANTIATE_TEST_SUITE_P(Devices, NarrowTypes, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
