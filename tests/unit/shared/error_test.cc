#include "shared/status/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "shared/status/grpc_status.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

TEST(Error, EveryReasonHasItsOwnNameAndComesBackByIt) {
  for (int i = 0; i <= static_cast<int>(Reason::kInternal); ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason) << i;
    EXPECT_NE(CodeOf(reason), absl::StatusCode::kOk);
  }
  EXPECT_EQ(ReasonFromName("NO_SUCH_REASON"), std::nullopt);
}

TEST(Error, TheCodeFollowsFromTheReason) {
  EXPECT_EQ(CodeOf(Reason::kLeaseConflict), absl::StatusCode::kAborted);
  EXPECT_EQ(CodeOf(Reason::kDeviceIndex), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(CodeOf(Reason::kFlagUnavailable), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(Reason::kOpUnsupported), absl::StatusCode::kUnimplemented);
}

TEST(Error, DetailsSurviveTheWireBothWays) {
  ErrorDetails details;
  details.reason = Reason::kQuotaExceeded;
  details.metadata = {{"quota", "leases"}, {"limit", "256"}};
  details.violations = {{"entries[2].value", Reason::kFlagValueInvalid, "does not accept -3"}};
  details.retry_after = absl::Milliseconds(1500);
  const absl::Status back = FromGrpc(ToGrpc(Error(details, "too many leases")));
  EXPECT_THAT(back, HasReason(Reason::kQuotaExceeded));
  EXPECT_EQ(back.message(), "too many leases");
  const auto found = DetailsOf(back);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->metadata.at("limit"), "256");
  ASSERT_EQ(found->violations.size(), 1);
  EXPECT_EQ(found->violations[0].field, "entries[2].value");
  EXPECT_EQ(found->violations[0].reason, Reason::kFlagValueInvalid);
  EXPECT_EQ(found->violations[0].description, "does not accept -3");
  EXPECT_EQ(found->retry_after, absl::Milliseconds(1500));
}

TEST(Error, AStatusOfAStrangerHasNoReason) {
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), std::nullopt);
  EXPECT_EQ(ReasonOf(FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"))), std::nullopt);
  EXPECT_OK(FromGrpc(ToGrpc(absl::OkStatus())));
}

TEST(Error, ViolationsThatDoNotFitAreCounted) {
  std::vector<Violation> violations;
  for (int i = 0; i < 500; ++i) {
    violations.push_back(
        {absl::StrCat("assignments[", i, "]"), Reason::kFlagUnknown, "there is no such flag"});
  }
  const absl::Status status = ErrorFrom(violations);
  EXPECT_THAT(status, HasReason(Reason::kFlagUnknown));
  EXPECT_LT(ToGrpc(status).error_details().size(), 5000u);
  const auto details = DetailsOf(status);
  ASSERT_TRUE(details.has_value());
  int dropped = 0;
  ASSERT_TRUE(absl::SimpleAtoi(details->metadata.at("violations_not_shown"), &dropped));
  EXPECT_EQ(dropped + details->violations.size(), 500u);
  EXPECT_OK(ErrorFrom({}));
}

TEST(Error, TextOfStrangersIsCutAndMadeValid) {
  const absl::Status status = Error(Reason::kFlagUnknown, std::string(5000, 'x') + "\xff",
                                    {{"name",
                                      "a\xff"
                                      "b"}});
  EXPECT_LE(status.message().size(), 1024u);
  EXPECT_EQ(DetailsOf(status)->metadata.at("name"), "a?b");
}

}  // namespace
}  // namespace backendd
