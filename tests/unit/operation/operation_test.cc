#include "shared/operation/operation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace backendd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void Fill(v1::Operand* operand, v1::Dtype dtype, std::initializer_list<int64_t> shape,
          std::initializer_list<int64_t> strides = {}) {
  operand->set_buffer(1);
  operand->set_dtype(dtype);
  for (int64_t extent : shape) operand->add_shape(extent);
  for (int64_t stride : strides) operand->add_strides(stride);
}

v1::Operation Product(std::initializer_list<int64_t> a, std::initializer_list<int64_t> b) {
  v1::Operation operation;
  Fill(operation.mutable_gemm()->mutable_a(), v1::DTYPE_F32, a);
  Fill(operation.mutable_gemm()->mutable_b(), v1::DTYPE_F32, b);
  operation.mutable_gemm()->mutable_y()->set_buffer(2);
  return operation;
}

struct Read {
  DecodedOperation decoded;
  std::vector<Violation> violations;
  std::vector<Reason> reasons() const {
    std::vector<Reason> all;
    for (const Violation& violation : violations) all.push_back(violation.reason);
    return all;
  }
};
Read ReadOf(const v1::Operation& operation) {
  Read read;
  read.decoded = Decode(operation, "operations[3]", &read.violations);
  Infer(read.decoded.spec, "operations[3]", &read.violations);
  return read;
}

TEST(Operation, AnOutputWithoutATypeTakesTheOneThatTheInputsGive) {
  const Read read = ReadOf(Product({4, 1, 2, 3}, {5, 3, 7}));
  EXPECT_THAT(read.violations, IsEmpty());
  EXPECT_EQ(read.decoded.spec.operands[4].type, RowMajor(DType::kF32, {4, 5, 2, 7}));
}

TEST(Operation, EveryViolationComesAtOnceAndNamesItsField) {
  v1::Operation operation = Product({2, 3}, {3, 4});
  Fill(operation.mutable_gemm()->mutable_bias(), v1::DTYPE_F64, {5});
  const Read read = ReadOf(operation);
  EXPECT_THAT(read.reasons(), ElementsAre(Reason::kDtypeInvalid, Reason::kShapeInvalid));
  EXPECT_EQ(read.violations[0].field, "operations[3].gemm.bias.dtype");
  EXPECT_EQ(read.violations[1].field, "operations[3].gemm.bias.shape");
}

TEST(Operation, TypesThatNoMemoryHoldsAreRefused) {
  const int64_t huge = int64_t{1} << 47;
  EXPECT_THAT(ReadOf(Product({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1})).reasons(),
              ElementsAre(Reason::kShapeInvalid));
  EXPECT_THAT(ReadOf(Product({huge, huge}, {1, 1})).reasons(), ElementsAre(Reason::kShapeInvalid));
  EXPECT_THAT(ReadOf(Product({-1, 3}, {3, 1})).reasons(), ElementsAre(Reason::kShapeInvalid));
  EXPECT_THAT(ReadOf(Product({kMaxExtent + 1, 3}, {3, 1})).reasons(),
              ElementsAre(Reason::kShapeInvalid));
  v1::Operation operation = Product({2, 3}, {3, 4});
  operation.mutable_gemm()->mutable_a()->add_strides(-1);
  operation.mutable_gemm()->mutable_a()->add_strides(1);
  EXPECT_THAT(ReadOf(operation).reasons(), ElementsAre(Reason::kShapeInvalid));
}

TEST(Operation, AnOutputThatOverlapsItselfIsRefusedAndAnInputIsNot) {
  v1::Operation operation = Product({}, {3, 4});
  Fill(operation.mutable_gemm()->mutable_a(), v1::DTYPE_F32, {2, 3}, {0, 1});
  EXPECT_THAT(ReadOf(operation).violations, IsEmpty());
  operation.mutable_gemm()->clear_y();
  Fill(operation.mutable_gemm()->mutable_y(), v1::DTYPE_F32, {2, 4}, {0, 1});
  EXPECT_THAT(ReadOf(operation).reasons(), ElementsAre(Reason::kOverlap));
}

TEST(Operation, AMissingOperandAndAnUnknownWordAreArgumentFaults) {
  v1::Operation operation;
  operation.mutable_activation()->set_function(static_cast<v1::ActivationFunction>(99));
  EXPECT_THAT(
      ReadOf(operation).reasons(),
      ElementsAre(Reason::kArgumentInvalid, Reason::kArgumentInvalid, Reason::kArgumentInvalid));
  EXPECT_THAT(ReadOf(v1::Operation()).reasons(), ElementsAre(Reason::kArgumentInvalid));
}

TEST(Operation, KeysDifferWhereTheKindAnAttributeOrATypeDoes) {
  auto key = [](const v1::Operation& operation) {
    std::string text;
    AppendKey(ReadOf(operation).decoded.spec, &text);
    return text;
  };
  const v1::Operation plain = Product({3, 3}, {3, 3});
  v1::Operation transposed = plain, tagged = plain;
  transposed.mutable_gemm()->set_trans_a(v1::TRANSPOSE_T);
  tagged.set_tag("only a name");
  EXPECT_NE(key(plain), key(transposed));
  EXPECT_NE(key(plain), key(Product({3, 3}, {3, 4})));
  EXPECT_EQ(key(plain), key(tagged));
}

TEST(Operation, WriteCarriesAsManyBytesAsItsOutputHas) {
  v1::Operation operation;
  Fill(operation.mutable_write()->mutable_y(), v1::DTYPE_F32, {3});
  for (double value : {1.0, 2.0, 3.0}) operation.mutable_write()->add_float_values(value);
  const Read read = ReadOf(operation);
  EXPECT_THAT(read.violations, IsEmpty());
  EXPECT_EQ(std::get<WriteAttributes>(read.decoded.spec.attributes).bytes.size(), 12u);
  operation.mutable_write()->add_float_values(4);
  EXPECT_THAT(ReadOf(operation).reasons(), ElementsAre(Reason::kArgumentInvalid));
}

}  // namespace
}  // namespace backendd
