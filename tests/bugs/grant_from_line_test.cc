// The first waiter's grant read its own place in line after taking it out: the id came from freed
// memory, and what it was depended on the allocator. AddressSanitizer found it in a test that had
// passed all along. What a loop erases, it holds by value.
#include <gtest/gtest.h>

#include "server/node/lease/lease_table.h"
#include "tests/support/fake_clock.h"

namespace backendd::node {
namespace {

TEST(GrantFromLine, AnswersTheWaiterThatItTookOut) {
  FakeClock clock;
  LeaseTable table(&clock);
  const LeaseKey key{1, ""};
  const LeaseId holder = table.Grant(SessionId(1), {key}, LeaseMode::kExclusive, std::nullopt).id;
  const LeaseId waiter =
      table.Enqueue(SessionId(2), {key}, LeaseMode::kExclusive, std::nullopt, absl::Minutes(1)).id;
  table.BeginEnd(holder);
  EXPECT_EQ(table.GrantNext(), std::nullopt);  // its keys are free only when it is forgotten
  table.Forget(holder, SessionId(1), 0);
  EXPECT_EQ(table.GrantNext(), waiter);
  EXPECT_EQ(table.GrantNext(), std::nullopt);
}

}  // namespace
}  // namespace backendd::node
