#include "server/worker/program/listing.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_device.h"
#include "tests/support/status_matchers.h"

namespace backendd::worker {
namespace {

class ListingTest : public testing::Test {
 protected:
  ListingTest() {
    const BufferTable::Request request{1, 4096};
    EXPECT_OK(buffers_.Allocate(absl::MakeConstSpan(&request, 1), {}));
  }
  static v1::Operand View(uint64_t offset, std::vector<int64_t> shape,
                          std::vector<int64_t> strides = {}) {
    v1::Operand operand;
    operand.set_buffer(1);
    operand.set_offset(offset);
    operand.set_dtype(v1::DTYPE_F32);
    for (int64_t extent : shape) operand.add_shape(extent);
    for (int64_t stride : strides) operand.add_strides(stride);
    return operand;
  }
  static TensorType Type(std::initializer_list<int64_t> shape,
                         std::initializer_list<int64_t> strides) {
    TensorType type;
    type.dtype = DType::kF32;
    type.shape.assign(shape.begin(), shape.end());
    type.strides.assign(strides.begin(), strides.end());
    return type;
  }
  void AddFill(v1::Operand y) {
    *program_.add_operations()->mutable_fill()->mutable_y() = std::move(y);
    program_.mutable_operations()->rbegin()->mutable_fill()->mutable_value()->set_real(1);
  }
  void AddUnary(v1::Operand x, v1::Operand y) {
    v1::Unary* const unary = program_.add_operations()->mutable_unary();
    unary->set_function(v1::UNARY_FUNCTION_NEG);
    *unary->mutable_x() = std::move(x);
    *unary->mutable_y() = std::move(y);
  }
  // Every violation of the program, in order.
  std::vector<Violation> Violations() {
    const auto listing = MakeListing(program_.operations(), 4096);
    if (!listing.ok()) return DetailsOf(listing.status())->violations;
    std::vector<Step> steps;
    std::vector<Violation> violations;
    Resolve(**listing, buffers_, program_.bindings(), &steps, &violations);
    return violations;
  }

  FakeClock clock_;
  FakeDevice device_;
  PlanCache plans_{{}, clock_};
  Memory memory_{device_, plans_, {1 << 20, 1 << 18}};
  BufferTable buffers_{memory_};
  v1::SubmitRequest program_;
};

TEST_F(ListingTest, EveryViolationOfEveryOperationComesAtOnce) {
  AddFill(View(4096, {1}));
  AddFill(View(0, {4}));
  AddFill(View(2, {4}));
  v1::Operand stranger = View(0, {4});
  stranger.set_buffer(9);
  AddFill(stranger);
  const auto violations = Violations();
  ASSERT_EQ(violations.size(), 3u);
  EXPECT_EQ(violations[0].field, "operations[0].fill.y");
  EXPECT_EQ(violations[0].reason, Reason::kShapeInvalid);
  EXPECT_EQ(violations[1].reason, Reason::kArgumentInvalid);
  EXPECT_EQ(violations[2].field, "operations[3].fill.y");
  EXPECT_EQ(violations[2].reason, Reason::kBufferUnknown);
}

TEST_F(ListingTest, InPlaceIsTheVeryViewAndEveryOtherOverlapIsRefused) {
  AddUnary(View(0, {8}), View(0, {8}));
  EXPECT_TRUE(Violations().empty());
  AddUnary(View(0, {8}), View(16, {8}));
  const auto violations = Violations();
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].reason, Reason::kOverlap);
  EXPECT_EQ(violations[0].field, "operations[1].unary.y");
}

TEST_F(ListingTest, TheHashIsThatOfTheOperationsAlone) {
  AddFill(View(0, {4}));
  const uint64_t hash = (*MakeListing(program_.operations(), 4096))->hash;
  program_.mutable_operations(0)->set_tag("named");
  EXPECT_EQ((*MakeListing(program_.operations(), 4096))->hash, hash);
  program_.mutable_operations(0)->mutable_fill()->mutable_value()->set_real(2);
  EXPECT_NE((*MakeListing(program_.operations(), 4096))->hash, hash);
}

TEST_F(ListingTest, AnEmptyOperandHasNoAddressAndMayLieAtTheEnd) {
  AddFill(View(4096, {0, 3}));
  EXPECT_TRUE(Violations().empty());
}

TEST_F(ListingTest, SlicesOfOneMatrixLieApart) {
  const TensorType left = Type({8, 4}, {16, 1});
  EXPECT_FALSE(MayOverlap(left, 0, left, 16));
  EXPECT_FALSE(MayOverlap(left, 0, left, 48));
  EXPECT_TRUE(MayOverlap(left, 0, left, 12));
  EXPECT_TRUE(MayOverlap(left, 0, left, 52));
  EXPECT_FALSE(MayOverlap(left, 0, left, 8 * 64));
}

}  // namespace
}  // namespace backendd::worker
