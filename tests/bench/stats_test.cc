#include "tests/bench/stats.h"

#include <gtest/gtest.h>

namespace backendd::bench {
namespace {

TEST(Percentile, IsTheNearestOfTheSortedValues) {
  EXPECT_EQ(Percentile({3, 1, 2}, 50), 2);
  EXPECT_EQ(Percentile({5}, 99), 5);
  EXPECT_EQ(Percentile({}, 50), 0);
  std::vector<double> hundred_and_one;
  for (int i = 100; i >= 0; --i) hundred_and_one.push_back(i);
  EXPECT_EQ(Percentile(hundred_and_one, 99), 99);
  EXPECT_EQ(Percentile(hundred_and_one, 0), 0);
}

TEST(Abba, DriftThatHitsBothSidesLeavesTheRatioAlone) {
  double drift = 1;
  const Timed a = [&] { return 2 * (drift *= 1.01); };
  const Timed b = [&] { return 1 * (drift *= 1.01); };
  Ratio ratio;
  ASSERT_TRUE(Abba(30, 1, a, b, &ratio));
  EXPECT_NEAR(ratio.ratio, 2, 0.05);
  EXPECT_LE(ratio.low, ratio.ratio);
  EXPECT_GE(ratio.high, ratio.ratio);
}

TEST(Abba, MeasuresByTurns) {
  std::string order;
  const Timed a = [&] { return order += 'A', 1.0; };
  const Timed b = [&] { return order += 'B', 1.0; };
  Ratio ratio;
  ASSERT_TRUE(Abba(2, 1, a, b, &ratio));
  EXPECT_EQ(order, "ABBAABBA");
}

TEST(Abba, AFailedCallEndsTheMeasurement) {
  Ratio ratio;
  EXPECT_FALSE(Abba(
      2, 1, [] { return -1.0; }, [] { return 1.0; }, &ratio));
}

}  // namespace
}  // namespace backendd::bench
