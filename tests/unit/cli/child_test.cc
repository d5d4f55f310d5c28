#include "client/cli/child.h"

#include <gtest/gtest.h>

#include "client/cli/exit_code.h"
#include "tests/support/status_matchers.h"

namespace backendd::cli {
namespace {

Child Forked(std::vector<std::string> command) {
  sigset_t none;
  sigemptyset(&none);
  auto child = Child::Fork(std::move(command), false, none);
  EXPECT_OK(child);
  return *std::move(child);
}

TEST(Child, RunsNothingUntilItIsStarted) {
  Child child = Forked({"sh", "-c", "exit 7"});
  EXPECT_EQ(child.Collect(), std::nullopt);
  EXPECT_EQ(child.Collect(true), 0);  // given up: it never became the command
}

TEST(Child, PassesItsExitCodeOn) {
  Child child = Forked({"sh", "-c", "exit 7"});
  child.Start({});
  EXPECT_EQ(child.Collect(true), 7);
}

TEST(Child, EndedByASignalIs128PlusItsNumber) {
  Child child = Forked({"sh", "-c", "kill -TERM $$"});
  child.Start({});
  EXPECT_EQ(child.Collect(true), 128 + SIGTERM);
}

TEST(Child, GetsTheVariablesOfItsStart) {
  Child child = Forked({"sh", "-c", "test \"$BACKENDD_LEASE\" = 'a=b c'"});
  child.Start({{"BACKENDD_LEASE", "a=b c"}});
  EXPECT_EQ(child.Collect(true), 0);
}

TEST(Child, ThatCannotBeRunSaysSoByItsCode) {
  Child missing = Forked({"/nonexistent/command"});
  missing.Start({});
  EXPECT_EQ(missing.Collect(true), kExitCommandNotFound);
  Child folder = Forked({"/"});
  folder.Start({});
  EXPECT_EQ(folder.Collect(true), kExitCannotExecute);
}

TEST(Child, ForwardedSignalsReachIt) {
  Child child = Forked({"sleep", "100"});
  child.Start({});
  child.Signal(SIGUSR1);
  EXPECT_EQ(child.Collect(true), 128 + SIGUSR1);
}

}  // namespace
}  // namespace backendd::cli
