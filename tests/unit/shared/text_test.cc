#include "shared/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace backendd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ValidUtf8, KeepsWhatIsValidAndReplacesEveryOtherByte) {
  EXPECT_EQ(ValidUtf8("plain"), "plain");
  EXPECT_EQ(ValidUtf8("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(ValidUtf8("a\xff"
                      "b"),
            "a?b");
  EXPECT_EQ(ValidUtf8("\xc3"), "?");                 // cut off
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "???");       // surrogate
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(ValidUtf8(absl::string_view("\0x", 2)), std::string("\0x", 2));
}

TEST(NearNames, OrdersByDistanceAndStopsAtTwo) {
  const std::vector<absl::string_view> names = {"cudnn.benchmark", "cudnn.benchmark_limit",
                                                "cudnn.enabled"};
  EXPECT_THAT(NearNames("cudnn.benchmrk", names), ElementsAre("cudnn.benchmark"));
  EXPECT_THAT(NearNames("cudnn.benhcmark", names),
              ElementsAre("cudnn.benchmark"));  // a swap is one edit
  EXPECT_THAT(NearNames("something.else", names), IsEmpty());
  EXPECT_THAT(NearNames("ab", {"abc", "ab", "abcd", "b"}, 2), ElementsAre("ab", "abc"));
}

TEST(NearNames, RefusesToMeasureAStrangersNovel) {
  const std::string novel(100'000, 'x');
  const std::string other(100'001, 'x');
  EXPECT_THAT(NearNames(novel, {other}), IsEmpty());
}

}  // namespace
}  // namespace backendd
