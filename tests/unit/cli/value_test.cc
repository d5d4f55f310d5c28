#include "client/cli/value.h"

#include <gtest/gtest.h>

#include "client/cli/exit_code.h"
#include "tests/support/status_matchers.h"

namespace backendd::cli {
namespace {

v1::FlagDescription Takes(std::vector<std::string> types) {
  v1::FlagDescription description;
  description.set_flag("some.flag");
  for (const std::string& type : types) description.add_types(type);
  return description;
}

std::string Shown(const std::string& text, std::vector<std::string> types) {
  const auto value = ParseValue(text, Takes(std::move(types)));
  if (!value.ok()) return value.status().ToString();
  return absl::StrCat(value->kind_case(), " ", ValueText(*value));
}

TEST(FlagValue, IsReadByTheTypeThatTheCatalogueGivesTheFlag) {
  using V = v1::FlagValue;
  EXPECT_EQ(Shown("true", {"bool"}), absl::StrCat(V::kBool, " true"));
  EXPECT_EQ(Shown("false", {"bool"}), absl::StrCat(V::kBool, " false"));
  EXPECT_EQ(Shown("-3", {"int"}), absl::StrCat(V::kInt, " -3"));
  EXPECT_EQ(Shown("tf32", {"text", "none"}), absl::StrCat(V::kText, " tf32"));
  EXPECT_EQ(Shown("none", {"text", "none"}), absl::StrCat(V::kNone, " none"));
  EXPECT_EQ(Shown("none", {"text"}), absl::StrCat(V::kText, " none"));
  EXPECT_EQ(Shown("[flash,  math]", {"list"}), absl::StrCat(V::kList, " [flash, math]"));
  EXPECT_EQ(Shown("[]", {"list"}), absl::StrCat(V::kList, " []"));
  EXPECT_EQ(Shown("(true, false)", {"bool", "pair"}), absl::StrCat(V::kPair, " (true, false)"));
  EXPECT_EQ(Shown("true", {"bool", "pair"}), absl::StrCat(V::kBool, " true"));
  EXPECT_EQ(Shown("9223372036854775807", {"int"}), absl::StrCat(V::kInt, " 9223372036854775807"));
}

TEST(FlagValue, OfAnotherTypeIsRefusedWithWhatIsAllowed) {
  for (const char* text : {"yes", "True", "1", "", "[true]"}) {
    EXPECT_THAT(ParseValue(text, Takes({"bool"})), HasReason(Reason::kFlagValueInvalid)) << text;
  }
  for (const char* text : {"3x", "9223372036854775808", "1.5", "none"}) {
    EXPECT_THAT(ParseValue(text, Takes({"int"})), HasReason(Reason::kFlagValueInvalid)) << text;
  }
  for (const char* text : {"(true)", "(true, maybe)", "true, false", "(true, false, true)"}) {
    EXPECT_THAT(ParseValue(text, Takes({"pair"})), HasReason(Reason::kFlagValueInvalid)) << text;
  }
}

TEST(FlagValue, WithoutAKindIsADash) { EXPECT_EQ(ValueText({}), "-"); }

TEST(Assignment, IsSplitAtTheFirstEqualsSign) {
  EXPECT_EQ(*SplitAssignment("a.b=c=d"), std::pair(std::string("a.b"), std::string("c=d")));
  EXPECT_EQ(SplitAssignment("a=")->second, "");
  EXPECT_THAT(SplitAssignment("=x"), HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(SplitAssignment("a.b"), HasReason(Reason::kArgumentInvalid));
}

TEST(Duration, NeedsAUnitAndIsNotNegative) {
  EXPECT_EQ(*ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  for (const char* text : {"30", "-1s", "inf", "", "soon"}) {
    EXPECT_THAT(ParseDuration(text), HasReason(Reason::kArgumentInvalid)) << text;
  }
}

TEST(Id, IsSixteenHexDigitsAndNotZero) {
  EXPECT_EQ(*ParseId("00000000000000ff"), 255u);
  EXPECT_EQ(IdText(*ParseId("7f3a00000000beef")), "7f3a00000000beef");
  for (const char* text : {"0000000000000000", "ff", "7f3a00000000beeg", "0x00000000000001"}) {
    EXPECT_THAT(ParseId(text), HasReason(Reason::kIdInvalid)) << text;
  }
}

TEST(Age, HasItsTwoLargestUnits) {
  EXPECT_EQ(AgeText(absl::Milliseconds(250)), "250ms");
  EXPECT_EQ(AgeText(absl::Seconds(59)), "59s");
  EXPECT_EQ(AgeText(absl::Seconds(192)), "3m12s");
  EXPECT_EQ(AgeText(absl::Minutes(61)), "1h1m");
  EXPECT_EQ(AgeText(absl::Hours(52)), "2d4h");
  EXPECT_EQ(AgeText(absl::Seconds(-1)), "0ms");
}

TEST(ExitCode, FollowsTheStatus) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kFlagUnknown, "")), kExitNotFound);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kLeaseConflict, "")), kExitHeld);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kPeerNotAllowed, "")), kExitRefused);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kDaemonUnreachable, "")), kExitNobodyServes);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), kExitDeadline);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kDeviceIndex, "")), kExitBadInput);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kFlagReadOnly, "")), kExitStateForbids);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kQuotaExceeded, "")), kExitQuota);
  EXPECT_EQ(ExitCodeOf(Error(Reason::kOpUnsupported, "")), kExitOther);
}

}  // namespace
}  // namespace backendd::cli
