#include "server/worker/plan/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace backendd::worker {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class PlanCacheTest : public testing::Test {
 protected:
  static std::unique_ptr<Plan> Made(uint64_t bytes = kMiB) {
    auto plan = std::make_unique<Plan>();
    plan->host_bytes = bytes;
    return plan;
  }
  // Runs one transform of this length: its plan is let go at once.
  bool Run(int length) {
    const auto found = cache_.Get(PlanKind::kFft, absl::StrCat(length), [] { return Made(); });
    EXPECT_OK(found.status());
    return found.ok() && found->hit;
  }
  bool Has(int length) { return cache_.Find(PlanKind::kFft, absl::StrCat(length)) != nullptr; }
  PlanCacheStats Stats() const { return cache_.Describe(PlanKind::kFft); }
  static absl::Status NoMemory() { return Error(Reason::kDeviceOutOfMemory, "no memory"); }

  FakeClock clock_;
  PlanCache cache_{{}, clock_};
};

TEST_F(PlanCacheTest, S19ManyLengthsStayWithinTheLimitAndTheirBytesAreCounted) {
  EXPECT_EQ(Stats().max_size, 4096u);
  cache_.SetLimit(PlanKind::kFft, 32);
  for (int length = 64; length <= 5063; ++length) Run(length);
  EXPECT_EQ(Stats().size, 32u);
  EXPECT_EQ(Stats().misses, 5000u);
  EXPECT_EQ(Stats().hits, 0u);
  EXPECT_EQ(Stats().evictions, 4968u);
  EXPECT_EQ(Stats().bytes, 33'554'432u);
  EXPECT_EQ(cache_.bytes(), 33'554'432u);
  EXPECT_EQ(cache_.Clear(PlanKind::kFft), 32u);
  EXPECT_EQ(Stats().size, 0u);
  EXPECT_EQ(Stats().bytes, 0u);
  EXPECT_EQ(Stats().max_size, 32u);
}

TEST_F(PlanCacheTest, S20TheLeastRecentlyUsedGoesAndShrinkingEvictsAtOnce) {
  cache_.SetLimit(PlanKind::kFft, 3);
  for (int length : {8, 16, 32, 8, 64, 16}) Run(length);
  EXPECT_EQ(Stats().hits, 1u);
  EXPECT_EQ(Stats().misses, 5u);
  EXPECT_EQ(Stats().evictions, 2u);
  EXPECT_FALSE(Has(32));
  EXPECT_TRUE(Has(8) && Has(64) && Has(16));
  cache_.SetLimit(PlanKind::kFft, 1);
  EXPECT_EQ(Stats().size, 1u);
  EXPECT_TRUE(Has(16));
}

TEST_F(PlanCacheTest, S21ClearingOneDevicesCacheLeavesTheOthers) {
  PlanCache other({}, clock_);
  const auto run = [](PlanCache& cache) {
    return cache.Get(PlanKind::kFft, "65", [] { return Made(); })->hit;
  };
  EXPECT_FALSE(run(cache_));
  EXPECT_FALSE(run(other));
  cache_.Clear(PlanKind::kFft);
  EXPECT_EQ(Stats().size, 0u);
  EXPECT_EQ(other.Describe(PlanKind::kFft).size, 1u);
  EXPECT_FALSE(run(cache_));
  EXPECT_TRUE(run(other));
}

TEST_F(PlanCacheTest, S23WithoutMemoryCachedPlansGoAndTheBuildIsTriedOnceMore) {
  cache_.SetLimit(PlanKind::kFft, 4);
  for (int length : {1, 2, 3, 4}) Run(length);
  int builds = 0;
  const auto once = cache_.Get(PlanKind::kFft, "5", [&]() -> absl::StatusOr<std::unique_ptr<Plan>> {
    if (++builds == 1) return NoMemory();
    return Made();
  });
  EXPECT_OK(once.status());
  EXPECT_EQ(Stats().size, 1u);
  for (int length : {1, 2, 3}) Run(length);
  builds = 0;
  const auto fails = [&]() -> absl::StatusOr<std::unique_ptr<Plan>> {
    ++builds;
    return NoMemory();
  };
  const auto twice = cache_.Get(PlanKind::kFft, "6", fails);
  EXPECT_THAT(twice.status(), HasReason(Reason::kDeviceOutOfMemory));
  EXPECT_EQ(builds, 2);
  EXPECT_FALSE(Has(6));
  EXPECT_TRUE(Has(5));  // `once` holds it
  EXPECT_EQ(Stats().size, 1u);
  EXPECT_FALSE(Run(6));  // no memory is not remembered
  EXPECT_EQ(Stats().size, 2u);
}

TEST_F(PlanCacheTest, S24WithLimitZeroPlansAreBuiltUsedAndNotKept) {
  cache_.SetLimit(PlanKind::kFft, 16);
  for (int length = 0; length < 16; ++length) Run(length);
  cache_.SetLimit(PlanKind::kFft, 0);
  EXPECT_EQ(Stats().size, 0u);
  EXPECT_FALSE(Run(3));
  EXPECT_EQ(Stats().size, 0u);
  cache_.SetLimit(PlanKind::kFft, 16);
  EXPECT_EQ(Stats().size, 0u);
  EXPECT_FALSE(Run(3));
  EXPECT_TRUE(Run(3));
}

TEST_F(PlanCacheTest, S43APlanInUseIsPassedOverAndFreedAfterItsLastUse) {
  cache_.SetLimit(PlanKind::kFft, 1);
  auto running = cache_.Get(PlanKind::kFft, "p", [] { return Made(); })->plan;
  const std::weak_ptr<const Plan> watched = running;
  auto other = cache_.Get(PlanKind::kFft, "q", [] { return Made(); })->plan;
  EXPECT_EQ(Stats().pinned, 2u);
  EXPECT_FALSE(watched.expired());
  running.reset();
  cache_.Trim();
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(Stats().size, 1u);
  EXPECT_TRUE(cache_.Find(PlanKind::kFft, "q") != nullptr);
}

TEST_F(PlanCacheTest, ThirtyTwoMissesAtOnceAreOneBuild) {
  std::atomic<int> builds = 0, hits = 0;
  std::atomic<bool> open = false;
  std::vector<std::thread> callers;
  for (int i = 0; i < 32; ++i) {
    callers.emplace_back([&] {
      const auto found = cache_.Get(PlanKind::kGemm, "x", [&] {
        ++builds;
        while (!open) std::this_thread::yield();
        return Made();
      });
      hits += found.ok() && found->hit;
    });
  }
  // Every other caller is counted as a hit before the one build ends.
  while (cache_.Describe(PlanKind::kGemm).hits < 31) std::this_thread::yield();
  open = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(hits, 31);
}

TEST_F(PlanCacheTest, ARefusalEvictsNothingAndIsRememberedForAWhile) {
  cache_.SetLimit(PlanKind::kFft, 2);
  Run(1);
  Run(2);
  int builds = 0;
  const auto refuse = [&]() -> absl::StatusOr<std::unique_ptr<Plan>> {
    ++builds;
    return Error(Reason::kNoKernel, "none");
  };
  const auto ask = [&] { return cache_.Get(PlanKind::kFft, "3", refuse).status(); };
  EXPECT_THAT(ask(), HasReason(Reason::kNoKernel));
  EXPECT_THAT(ask(), HasReason(Reason::kNoKernel));
  EXPECT_EQ(builds, 1);
  EXPECT_TRUE(Has(1) && Has(2));
  clock_.Advance(absl::Seconds(31));
  EXPECT_THAT(ask(), HasReason(Reason::kNoKernel));
  EXPECT_EQ(builds, 2);
}

TEST_F(PlanCacheTest, BytesOfAllKindsAreOneBudget) {
  PlanCache::Options options;
  options.bytes = 3 * kMiB;
  PlanCache cache(options, clock_);
  for (const auto& [kind, key] : {std::pair(PlanKind::kGemm, "a"),
                                  {PlanKind::kFft, "b"},
                                  {PlanKind::kGemm, "c"},
                                  {PlanKind::kOther, "d"}})
    EXPECT_OK(cache.Get(kind, key, [] { return Made(); }).status());
  EXPECT_EQ(cache.bytes(), 3 * kMiB);
  EXPECT_EQ(cache.Find(PlanKind::kGemm, "a"), nullptr);
  EXPECT_NE(cache.Find(PlanKind::kGemm, "c"), nullptr);
}

TEST_F(PlanCacheTest, APlanBegunBeforeAClearIsNotKept) {
  const auto found = cache_.Get(PlanKind::kFft, "x", [&] {
    cache_.Clear(PlanKind::kFft);
    return Made();
  });
  EXPECT_OK(found.status());
  EXPECT_EQ(Stats().size, 0u);
}

}  // namespace
}  // namespace backendd::worker
