#include "shared/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace backendd {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TensorType View(Extents shape, Extents strides, DType dtype = DType::kF32) {
  return {dtype, shape, strides};
}

TEST(DType, EveryTypeComesBackByItsNameAndHasASize) {
  for (int i = 1; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
    EXPECT_GT(SizeOf(dtype), 0u);
  }
  EXPECT_EQ(DTypeFromName("float32"), std::nullopt);
  EXPECT_EQ(RealOf(DType::kC64), DType::kF32);
}

TEST(TensorType, RowMajorStridesOfEmptyAndHugeShapesDoNotOverflow) {
  EXPECT_THAT(RowMajorStrides({2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(RowMajorStrides({2, 0, 4}), ElementsAre(4, 4, 1));
  EXPECT_EQ(RowMajorStrides({kMaxExtent, kMaxExtent, kMaxExtent})[0], INT64_MAX);
}

TEST(TensorType, KnowsWhetherItIsDense) {
  EXPECT_TRUE(View({2, 3}, {3, 1}).row_major());
  EXPECT_TRUE(View({1, 3}, {77, 1}).row_major());  // the stride of an extent of 1 does not count
  EXPECT_FALSE(View({2, 3}, {1, 2}).row_major());
  EXPECT_FALSE(View({2, 3}, {4, 1}).row_major());
  EXPECT_TRUE(View({0, 3}, {9, 9}).row_major());
}

TEST(TensorType, FindsViewsThatMeetThemselves) {
  EXPECT_FALSE(View({2, 3}, {3, 1}).overlaps_itself());
  EXPECT_FALSE(View({2, 3}, {1, 2}).overlaps_itself());
  EXPECT_TRUE(View({2, 3}, {0, 1}).overlaps_itself());
  EXPECT_TRUE(View({2, 3}, {2, 1}).overlaps_itself());
  EXPECT_FALSE(View({2, 0}, {0, 0}).overlaps_itself());
  EXPECT_FALSE(View({}, {}).overlaps_itself());
}

TEST(SpanBytes, ReachesTheLastElementAndFindsOverflow) {
  EXPECT_THAT(SpanBytes(RowMajor(DType::kF32, {2, 3})), Optional(24));
  EXPECT_THAT(SpanBytes(View({2, 3}, {10, 1})), Optional(13 * 4));
  EXPECT_THAT(SpanBytes(View({2, 0}, {10, 1})), Optional(0));
  EXPECT_THAT(SpanBytes(RowMajor(DType::kF64, {})), Optional(8));
  EXPECT_EQ(SpanBytes(RowMajor(DType::kF32, {kMaxExtent, kMaxExtent})), std::nullopt);
  EXPECT_EQ(SpanBytes(View({2}, {INT64_MAX / 2})), std::nullopt);
}

TEST(BroadcastShapes, FollowsNumpyAndZeroBeatsOne) {
  EXPECT_THAT(BroadcastShapes({2, 1, 4}, {3, 1}), Optional(ElementsAre(2, 3, 4)));
  EXPECT_THAT(BroadcastShapes({}, {5}), Optional(ElementsAre(5)));
  EXPECT_THAT(BroadcastShapes({1}, {0}), Optional(ElementsAre(0)));
  EXPECT_EQ(BroadcastShapes({2}, {3}), std::nullopt);
  EXPECT_EQ(BroadcastShapes({2}, {0}), std::nullopt);
}

TEST(ToText, ShowsStridesOnlyWhereTheyAreOdd) {
  EXPECT_EQ(ToText(RowMajor(DType::kF32, {64, 1, 8})), "f32[64, 1, 8]");
  EXPECT_EQ(ToText(View({2, 3}, {1, 2})), "f32[2, 3] strides [1, 2]");
}

}  // namespace
}  // namespace backendd
