#include "shared/flag_value.h"

#include <gtest/gtest.h>

namespace backendd {
namespace {

TEST(FlagValue, IsWrittenAsCommandLinesReadIt) {
  EXPECT_EQ(ToText(FlagValue(None{})), "none");
  EXPECT_EQ(ToText(FlagValue(true)), "true");
  EXPECT_EQ(ToText(FlagValue(int64_t{-3})), "-3");
  EXPECT_EQ(ToText(FlagValue(std::string("tf32"))), "tf32");
  EXPECT_EQ(ToText(FlagValue(TextList{"flash", "math"})), "[flash, math]");
  EXPECT_EQ(ToText(FlagValue(BoolPair{true, false})), "(true, false)");
}

TEST(FlagValue, ValuesOfDifferentKindsAreNeverEqual) {
  EXPECT_NE(FlagValue(false), FlagValue(None{}));
  EXPECT_NE(FlagValue(int64_t{0}), FlagValue(false));
  EXPECT_EQ(TypeOf(FlagValue(BoolPair{true, true})), FlagType::kPair);
  EXPECT_EQ(TypeName(FlagType::kList), "list");
}

}  // namespace
}  // namespace backendd
