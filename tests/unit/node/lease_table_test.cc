#include "server/node/lease/lease_table.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace backendd::node {
namespace {

constexpr auto kShared = LeaseMode::kShared;
constexpr auto kExclusive = LeaseMode::kExclusive;
const SessionId kA(1), kB(2), kC(3);
const LeaseKey kX{1, ""}, kY{2, ""};

class LeaseTableTest : public testing::Test {
 protected:
  LeaseId Grant(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode = kShared,
                std::optional<absl::Duration> ttl = std::nullopt) {
    return table_.Grant(session, std::move(keys), mode, ttl).id;
  }
  void Gone(LeaseId id) {
    const SessionId session = table_.Find(id)->session;
    table_.BeginEnd(id);
    table_.Forget(id, session, 1);
  }
  LeaseId Wait(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode = kExclusive) {
    return table_.Enqueue(session, std::move(keys), mode, std::nullopt, absl::Hours(1)).id;
  }

  FakeClock clock_;
  LeaseTable table_{&clock_};
};

TEST_F(LeaseTableTest, SharedLeasesStack) {
  Grant(kA, {kX});
  EXPECT_FALSE(table_.Blocker(kB, {kX}, kShared).has_value());
}

TEST_F(LeaseTableTest, ExclusiveConflictNamesTheHolder) {
  const LeaseId held = Grant(kA, {kX}, kExclusive);
  EXPECT_EQ(table_.Blocker(kB, {kX}, kShared), held);
  EXPECT_EQ(table_.Blocker(kB, {kX}, kExclusive), held);
  EXPECT_FALSE(table_.Blocker(kA, {kX}, kExclusive).has_value());
  EXPECT_FALSE(table_.Blocker(kB, {kY}, kExclusive).has_value());
}

TEST_F(LeaseTableTest, TheNodeOverlapsEveryDeviceAndDevicesDoNotOverlap) {
  const LeaseId held = Grant(kA, {{1, "gpu0"}}, kExclusive);
  EXPECT_EQ(table_.Blocker(kB, {kX}, kShared), held);
  EXPECT_FALSE(table_.Blocker(kB, {{1, "gpu1"}}, kShared).has_value());
}

TEST_F(LeaseTableTest, KeysOfAnEndingLeaseStayTakenUntilForgotten) {
  const LeaseId held = Grant(kA, {kX}, kExclusive);
  table_.BeginEnd(held);
  EXPECT_EQ(table_.Blocker(kB, {kX}, kShared), held);
  table_.Forget(held, kA, 1);
  EXPECT_FALSE(table_.Blocker(kB, {kX}, kShared).has_value());
  ASSERT_NE(table_.FindEnded(held), nullptr);
  clock_.Advance(absl::Minutes(11));
  EXPECT_EQ(table_.FindEnded(held), nullptr);
}

TEST_F(LeaseTableTest, WaitersAreGrantedInOrderOfArrival) {
  const LeaseId held = Grant(kA, {kX}, kExclusive);
  const LeaseId first = Wait(kB, {kX}), second = Wait(kC, {kX});
  EXPECT_EQ(table_.PositionOf(second), 2);
  EXPECT_FALSE(table_.GrantNext().has_value());
  Gone(held);
  EXPECT_EQ(table_.GrantNext(), first);
  EXPECT_FALSE(table_.GrantNext().has_value());
  Gone(first);
  EXPECT_EQ(table_.GrantNext(), second);
}

TEST_F(LeaseTableTest, SharedQueuesBehindAWaitingExclusive) {
  Grant(kA, {kX});
  const LeaseId waiting = Wait(kB, {kX});
  EXPECT_EQ(table_.Blocker(kC, {kX}, kShared), waiting);
}

TEST_F(LeaseTableTest, AWaiterThatDiesLetsTheNextOneThrough) {
  Grant(kA, {kX});
  const LeaseId exclusive = Wait(kB, {kX}), shared = Wait(kC, {kX}, kShared);
  EXPECT_FALSE(table_.GrantNext().has_value());
  Gone(exclusive);
  EXPECT_EQ(table_.GrantNext(), shared);
}

TEST_F(LeaseTableTest, CrossedKeysCannotDeadlock) {
  const LeaseId x = Grant(kA, {kX}, kExclusive);
  const LeaseId first = Wait(kB, {kX, kY}), second = Wait(kC, {kY, kX});
  Gone(x);
  EXPECT_EQ(table_.GrantNext(), first);
  EXPECT_FALSE(table_.GrantNext().has_value());
  Gone(first);
  EXPECT_EQ(table_.GrantNext(), second);
}

TEST_F(LeaseTableTest, ALeaseIsNeverDueEarlyAndRenewalMovesItsEnd) {
  const LeaseId id = Grant(kA, {kX}, kShared, absl::Seconds(1));
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(table_.Due().empty());
  EXPECT_TRUE(table_.Renew(id));
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(table_.Due().empty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(table_.Due(), std::vector<LeaseId>{id});
  table_.BeginEnd(id);
  EXPECT_FALSE(table_.Renew(id));
  EXPECT_TRUE(table_.Due().empty());
}

TEST_F(LeaseTableTest, AStallIsCreditedToEveryDeadline) {
  const LeaseId id = Grant(kA, {kX}, kShared, absl::Seconds(3));
  clock_.Advance(absl::Seconds(30));
  table_.CreditStall(absl::Seconds(28));
  EXPECT_TRUE(table_.Due().empty());
  EXPECT_EQ(table_.Find(id)->deadline, clock_.Steady() + absl::Seconds(1));
}

TEST_F(LeaseTableTest, EndedLeasesAreRememberedUpToALimit) {
  const LeaseId first = Grant(kA, {kX});
  Gone(first);
  for (int i = 0; i < 4096; ++i) Gone(Grant(kA, {kX}));
  EXPECT_EQ(table_.FindEnded(first), nullptr);
  EXPECT_EQ(table_.EndedOf(kA).size(), 4096u);
  EXPECT_EQ(table_.size(), 0u);
}

}  // namespace
}  // namespace backendd::node
