#include "server/worker/buffer/buffer_table.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_device.h"
#include "tests/support/status_matchers.h"

namespace backendd::worker {
namespace {

class BufferTableTest : public testing::Test {
 protected:
  absl::Status Allocate(BufferTable& table, std::vector<BufferTable::Request> requests,
                        const Quotas& quotas = {}) {
    return table.Allocate(requests, quotas);
  }
  uint64_t Used() const { return memory_.Used(MemoryUse::kBuffer); }

  FakeClock clock_;
  FakeDevice device_;
  PlanCache plans_{{}, clock_};
  Memory memory_{device_, plans_, {1 << 20, 1 << 18}};
  BufferTable table_{memory_}, other_{memory_};
};

TEST_F(BufferTableTest, TheLedgerIsTheSumOfTheTablesAndWhatTheDeviceMapped) {
  ASSERT_OK(Allocate(table_, {{1, 100}, {2, 200}}));
  ASSERT_OK(Allocate(other_, {{1, 50}}));
  EXPECT_EQ(table_.bytes() + other_.bytes(), Used());
  EXPECT_EQ(device_.mapped(), Used());
  EXPECT_EQ(table_.FreeAll(), 300u);
  EXPECT_EQ(Used(), 50u);
  EXPECT_EQ(other_.FreeAll(), 50u);
  EXPECT_EQ(device_.mapped(), 0u);
}

TEST_F(BufferTableTest, WhenTheDeviceIsFullNothingOfTheCallStays) {
  const absl::Status full = Allocate(table_, {{1, 1 << 19}, {2, 1 << 20}});
  EXPECT_THAT(full, HasReason(Reason::kDeviceOutOfMemory));
  EXPECT_EQ(DetailsOf(full)->metadata["requested"], "1048576");
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(Used(), 0u);
  EXPECT_OK(Allocate(table_, {{2, 1 << 20}}));
}

TEST_F(BufferTableTest, UnpinnedPlansMakeRoomForABuffer) {
  ASSERT_OK(plans_
                .Get(PlanKind::kGemm, "x",
                     [] {
                       auto plan = std::make_unique<Plan>();
                       plan->host_bytes = 1 << 19;
                       return plan;
                     })
                .status());
  EXPECT_OK(Allocate(table_, {{1, 1 << 20}}));
  EXPECT_EQ(plans_.bytes(), 0u);
}

TEST_F(BufferTableTest, QuotasNameWhatIsUsedAndAskedFor) {
  Quotas quotas;
  quotas.buffers = 2;
  ASSERT_OK(Allocate(table_, {{1, 1}}, quotas));
  const absl::Status many = Allocate(table_, {{2, 1}, {3, 1}}, quotas);
  EXPECT_THAT(many, HasReason(Reason::kQuotaExceeded));
  EXPECT_EQ(DetailsOf(many)->metadata["quota"], "buffers");
  EXPECT_EQ(DetailsOf(many)->metadata["used"], "1");
  EXPECT_EQ(DetailsOf(many)->metadata["requested"], "2");
  EXPECT_THAT(CheckQuota("bytes", UINT64_MAX, 1, UINT64_MAX), HasReason(Reason::kQuotaExceeded));
  EXPECT_OK(CheckQuota("bytes", UINT64_MAX, 1, UINT64_MAX - 1));
}

TEST_F(BufferTableTest, APinnedBufferIsFreedAtItsLastUnpin) {
  ASSERT_OK(Allocate(table_, {{1, 64}, {2, 64}}));
  Buffer* const buffer = *table_.Find(1);
  buffer->pins = 2;
  EXPECT_THAT(*table_.Free(std::vector<uint64_t>{1, 2}), testing::ElementsAre(1));
  EXPECT_THAT(table_.Find(1).status(), HasReason(Reason::kBufferReleasing));
  EXPECT_THAT(Allocate(table_, {{1, 64}}), HasReason(Reason::kBufferReleasing));
  table_.Unpin(buffer);
  EXPECT_EQ(Used(), 64u);
  table_.Unpin(buffer);
  EXPECT_EQ(Used(), 0u);
  EXPECT_THAT(table_.Find(1).status(), HasReason(Reason::kBufferUnknown));
}

TEST_F(BufferTableTest, AFreeThatNamesAStrangerFreesNothing) {
  ASSERT_OK(Allocate(table_, {{1, 64}}));
  EXPECT_THAT(table_.Free(std::vector<uint64_t>{1, 9}).status(), HasReason(Reason::kBufferUnknown));
  EXPECT_THAT(table_.Free(std::vector<uint64_t>{1, 1}).status(), HasReason(Reason::kBufferUnknown));
  EXPECT_OK(table_.Find(1).status());
}

TEST(BufferPoison, IsCutByWhatIsWrittenAnew) {
  Buffer buffer;
  const auto cause = std::make_shared<const absl::Status>(Error(Reason::kIndexInvalid, "first"));
  buffer.Poison(0, 100, cause);
  buffer.Heal(40, 60);
  EXPECT_EQ(buffer.PoisonIn(40, 60), nullptr);
  EXPECT_EQ(buffer.PoisonIn(0, 41), cause.get());
  EXPECT_EQ(buffer.PoisonIn(59, 61), cause.get());
  EXPECT_EQ(buffer.PoisonIn(100, 200), nullptr);
  buffer.Heal(0, 40);
  buffer.Heal(60, 100);
  EXPECT_FALSE(buffer.poisoned());
}

}  // namespace
}  // namespace backendd::worker
