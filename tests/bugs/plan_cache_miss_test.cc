// The worker ended at the first plan that it had to build: "An OK status is not a valid constructor
// argument to StatusOr". The answer began as the status of the build, which was OK. Two fills and a
// gemm of 1024x1024 were the first program that showed it.
#include <gtest/gtest.h>

#include "server/worker/plan/plan_cache.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace backendd::worker {
namespace {

TEST(PlanCacheMiss, ABuiltPlanIsAnAnswerAndNotAnError) {
  FakeClock clock;
  PlanCache cache({}, clock);
  const auto build = [] { return std::make_unique<Plan>(); };
  const auto built = cache.Get(PlanKind::kGemm, "key", build);
  ASSERT_OK(built.status());
  EXPECT_NE(built->plan, nullptr);
  EXPECT_FALSE(built->hit);
  EXPECT_TRUE(cache.Get(PlanKind::kGemm, "key", build)->hit);
}

TEST(PlanCacheMiss, ARefusedBuildIsTheError) {
  FakeClock clock;
  PlanCache cache({}, clock);
  const auto refused = cache.Get(
      PlanKind::kGemm, "key",
      []() -> absl::StatusOr<std::unique_ptr<Plan>> { return Error(Reason::kNoKernel, "none"); });
  EXPECT_THAT(refused.status(), HasReason(Reason::kNoKernel));
}

}  // namespace
}  // namespace backendd::worker
