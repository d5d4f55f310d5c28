// Leases that backendctl holds: for itself, and for the life of a command.
#include <gmock/gmock.h>

#include "tests/process/cli/daemon_fixture.h"

namespace backendd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class BackendctlRun : public BackendctlTest {};

TEST_F(BackendctlRun, LeaseLivesAsLongAsTheCommand) {
  const Outcome outcome =
      Ctl({"run", "--set", "cudnn.benchmark=true", "--", BIN "/backendctl", "get", "flags",
           "cudnn.benchmark", "-o", "json"});  // finds the daemon by BACKENDD_ADDRESS
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const json reading = json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(reading["value"], json({{"bool", true}})) << outcome.out;
  EXPECT_EQ(reading["layer"], "LAYER_LEASE");
  EXPECT_TRUE(Becomes("cudnn.benchmark", "false"));
}

TEST_F(BackendctlRun, PassesExitCodesAndSignalsOn) {
  EXPECT_EQ(Ctl({"run", "--set", "cudnn.benchmark=true", "--", "sh", "-c", "exit 7"}).code, 7);
  EXPECT_EQ(Ctl({"run", "--set", "cudnn.benchmark=true", "--", "sh", "-c", "kill -KILL $$"}).code,
            137);
  EXPECT_EQ(Ctl({"run", "--set", "cudnn.benchmark=true", "--", "/nonexistent/x"}).code, 127);
  EXPECT_EQ(Ctl({"run", "--set", "cudnn.benchmark=true", "--", "/"}).code, 126);
}

TEST_F(BackendctlRun, FailsBeforeTheCommandWhereTheLeaseCannotBeHad) {
  const std::string file = directory_ + "/ran";
  const Outcome outcome = Ctl({"run", "--set", "cudnn.benchmark=7", "--", "touch", file});
  EXPECT_EQ(outcome.code, 125);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(BackendctlRun, ForwardsSigterm) {
  Program run(
      CtlWords({"run", "--set", "cudnn.benchmark=true", "--", "sh", "-c",
                "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.02; done"}));
  ASSERT_TRUE(run.AwaitOut("ready\n"));
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 9);
  EXPECT_THAT(run.out(), HasSubstr("told"));
}

TEST_F(BackendctlRun, KilledRunRollsBackAndEndsItsCommand) {
  Program run(
      CtlWords({"run", "--set", "cudnn.benchmark=true", "--", "sh", "-c",
                "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.02; done"}));
  ASSERT_TRUE(run.AwaitOut("ready\n"));
  ASSERT_EQ(Flag("cudnn.benchmark"), json({{"bool", true}}));
  run.Signal(SIGKILL);
  EXPECT_TRUE(run.AwaitOut("told"));  // the command got SIGTERM by its parent's death
  EXPECT_TRUE(Becomes("cudnn.benchmark", "false"));
}

TEST_F(BackendctlRun, WithoutADaemonRunsOnlyIfAsked) {
  const std::vector<std::string> base = {
      BIN "/backendctl", "--address", "/nonexistent/s", "run", "--set", "cudnn.benchmark=true"};
  auto words = base;
  words.insert(words.end(), {"--", "true"});
  EXPECT_EQ(RunToEnd(words).code, 125);
  words = base;
  words.insert(words.end(), {"--if-unavailable=run", "--", "sh", "-c", "exit 5"});
  EXPECT_EQ(RunToEnd(words).code, 5);
}

TEST_F(BackendctlRun, LostLeaseIsSaidOnceAndStopsTheCommandIfAsked) {
  Program run(CtlWords({"run", "--set", "cudnn.benchmark=true", "--owner", "job", "--on-lost=stop",
                        "--", "sh", "-c", "echo ready; exec sleep 100"}));
  ASSERT_TRUE(run.AwaitOut("ready\n"));
  ASSERT_EQ(Ctl({"lease", "release", "--owner", "job"}).code, 0);
  EXPECT_EQ(run.Wait(), 125);
  EXPECT_THAT(run.err(), HasSubstr("the lease is lost"));
}

TEST_F(BackendctlRun, HoldHoldsUntilItIsInterrupted) {
  Program hold(CtlWords({"lease", "hold", "cudnn.benchmark=true"}));
  ASSERT_TRUE(hold.AwaitOut("holding lease ")) << hold.err();
  EXPECT_EQ(Flag("cudnn.benchmark"), json({{"bool", true}}));
  json leases = Json({"get", "leases"});
  ASSERT_EQ(leases["items"].size(), 1u);
  EXPECT_EQ(leases["items"][0]["entries"][0]["flag"], "cudnn.benchmark");
  hold.Signal(SIGINT);
  EXPECT_EQ(hold.Wait(), 0);
  EXPECT_TRUE(Becomes("cudnn.benchmark", "false"));
}

TEST_F(BackendctlRun, ExclusiveConflictExits4AndNamesTheHolder) {
  Program hold(CtlWords({"lease", "hold", "cudnn.benchmark=true", "--exclusive"}));
  ASSERT_TRUE(hold.AwaitOut("holding lease ")) << hold.err();
  const Outcome second = Ctl({"lease", "hold", "cudnn.benchmark=false"});
  EXPECT_EQ(second.code, 4);
  EXPECT_THAT(second.err, HasSubstr(std::to_string(hold.pid())));
  EXPECT_THAT(second.err, HasSubstr("try: "));
}

TEST_F(BackendctlRun, ReleaseByOwnerEndsTheHoldAndTwiceIsNoError) {
  Program hold(CtlWords({"lease", "hold", "cudnn.benchmark=true", "--owner", "slurm-job:4711"}));
  ASSERT_TRUE(hold.AwaitOut("holding lease "));
  EXPECT_EQ(Ctl({"lease", "release", "--owner", "slurm-job:4711"}).code, 0);
  EXPECT_EQ(hold.Wait(), 4);
  EXPECT_EQ(Ctl({"lease", "release", "--owner", "slurm-job:4711"}).code, 0);
}

}  // namespace
}  // namespace backendd
