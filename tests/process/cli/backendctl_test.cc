// What backendctl shows and changes, and how it says no.
#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/str_split.h"
#include "tests/process/cli/daemon_fixture.h"

namespace backendd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Backendctl, SaysWhichSocketsItTriedAndWhyNoneAnswered) {
  const Outcome outcome = RunToEnd({BIN "/backendctl", "status"}, {"XDG_RUNTIME_DIR=/nonexistent"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, StartsWith("error: "));
  EXPECT_THAT(outcome.err,
              HasSubstr("/nonexistent/backendd/backendd.sock (No such file or directory)"));
  EXPECT_THAT(outcome.err, HasSubstr("\ntry: "));
  EXPECT_EQ(outcome.out, "");
}

TEST(Backendctl, TakesItsAddressFromTheEnvironment) {
  const Outcome outcome =
      RunToEnd({BIN "/backendctl", "status"}, {"BACKENDD_ADDRESS=unix:///nonexistent/s"});
  EXPECT_EQ(outcome.code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/s ("));
}

TEST(Backendctl, UsageErrorsExit2) {
  for (const char* word : {"statsu", "--nope", "get"}) {
    EXPECT_EQ(RunToEnd({BIN "/backendctl", word}).code, 2) << word;
  }
  EXPECT_EQ(RunToEnd({BIN "/backendctl", "--help"}).code, 0);
}

TEST(Backendctl, CompletionScriptsAreWhatTheirShellAccepts) {
  const Outcome script = RunToEnd({BIN "/backendctl", "completion", "bash"});
  EXPECT_EQ(script.code, 0);
  const Outcome checked = RunToEnd({"bash", "-n", "-c", script.out});
  EXPECT_EQ(checked.code, 0) << checked.err;
}

TEST_F(BackendctlTest, StatusShowsDaemonAndDevicesOnOneScreen) {
  const Outcome outcome = Ctl({"status"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(socket_));
  EXPECT_THAT(outcome.out, HasSubstr("cpu"));
  const std::vector<std::string> lines = absl::StrSplit(outcome.out, '\n');
  EXPECT_LE(lines.size(), 25u) << outcome.out;
  EXPECT_EQ(Json({"status"})["devices"][0]["device"], "cpu");
}

TEST_F(BackendctlTest, HealthAndVersionAnswer) {
  EXPECT_EQ(Ctl({"health"}).code, 0);
  EXPECT_EQ(Ctl({"health", "backendd.v1.NoService"}).code, 3);
  EXPECT_NE(Json({"version"})["daemon"], "");
}

TEST_F(BackendctlTest, ListsFlagsForPeopleAndPrograms) {
  json list = Json({"get", "flags"});
  EXPECT_EQ(list["kind"], "FlagList");
  EXPECT_GT(list["items"].size(), 100u);  // more than one page of the daemon's default
  const Outcome table = Ctl({"get", "flags", "cudnn."});
  EXPECT_THAT(table.out, StartsWith("FLAG "));
  EXPECT_THAT(table.out, HasSubstr("cudnn.benchmark "));
  EXPECT_THAT(table.out, Not(HasSubstr("mkldnn.")));
  EXPECT_THAT(table.out, Not(HasSubstr("\x1b")));  // no terminal, no colour
  EXPECT_THAT(Ctl({"get", "flags", "cudnn.", "--color=always"}).out, StartsWith("\x1b[1m"));
  EXPECT_THAT(Ctl({"get", "flags", "cudnn.benchmark", "-o", "name"}).out, "cudnn.benchmark\n");
}

TEST_F(BackendctlTest, SetsAndUnsetsBaseValues) {
  const Outcome set = Ctl({"set", "cudnn.benchmark=true", "cudnn.benchmark_limit=4"});
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_THAT(set.out, HasSubstr("cudnn.benchmark: false -> true"));
  EXPECT_EQ(Flag("cudnn.benchmark"), json({{"bool", true}}));
  EXPECT_EQ(Flag("cudnn.benchmark_limit"), json({{"int", "4"}}));
  EXPECT_EQ(Ctl({"unset", "cudnn.benchmark", "cudnn.benchmark_limit"}).code, 0);
  EXPECT_EQ(Flag("cudnn.benchmark"), json({{"bool", false}}));
}

TEST_F(BackendctlTest, DryRunChangesNothing) {
  const Outcome dry = Ctl({"set", "cudnn.benchmark=true", "--dry-run"});
  EXPECT_EQ(dry.code, 0);
  EXPECT_EQ(dry.out, "would be accepted; nothing is written\n");
  EXPECT_EQ(Ctl({"set", "cudnn.benchmark=7", "--dry-run"}).code, 8);
  EXPECT_EQ(Flag("cudnn.benchmark"), json({{"bool", false}}));
}

TEST_F(BackendctlTest, RefusalsHaveTheirExitCodes) {
  const Outcome unknown = Ctl({"explain", "cudnn.benchmrk"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("cudnn.benchmark"));  // did you mean
  EXPECT_EQ(Ctl({"set", "cudnn.benchmark=maybe"}).code, 8);
  EXPECT_EQ(Ctl({"set", "cudnn.benchmark_limit=-3"}).code, 8);
  EXPECT_EQ(Ctl({"set", "cudnn.benchmark"}).code, 8);
  EXPECT_EQ(Ctl({"describe", "device", "gpu-7"}).code, 3);
  EXPECT_EQ(Ctl({"describe", "lease", "00000000000000aa"}).code, 3);
  EXPECT_EQ(Flag("cudnn.benchmark"), json({{"bool", false}}));
}

TEST_F(BackendctlTest, ExplainShowsEveryLayerAndTheWinner) {
  ASSERT_EQ(Ctl({"set", "cudnn.benchmark=true", "--reason", "tuning"}).code, 0);
  json explained = Json({"explain", "cudnn.benchmark"});
  EXPECT_EQ(explained["layers"][0]["layer"], "LAYER_BASE");
  EXPECT_EQ(explained["layers"][0]["winner"], true);
  const Outcome text = Ctl({"explain", "cudnn.benchmark"});
  EXPECT_THAT(text.out, HasSubstr("tuning"));
  EXPECT_THAT(text.out, HasSubstr("BUILT_IN"));
  EXPECT_EQ(Ctl({"describe", "flag", "cudnn.benchmark"}).code, 0);
  EXPECT_EQ(Ctl({"describe", "device", "cpu"}).code, 0);
}

TEST_F(BackendctlTest, VerbosePrintsTheEqualGrpcurlLine) {
  const Outcome outcome = Ctl({"-v=6", "get", "flags", "cudnn.benchmark", "-o", "name"});
  EXPECT_THAT(outcome.err, StartsWith("grpcurl -plaintext -unix -d '{"));
  EXPECT_THAT(outcome.err, HasSubstr(socket_ + " backendd.v1.FlagService/GetFlag"));
}

TEST_F(BackendctlTest, WatchPrintsOneObjectALine) {
  Program watch(CtlWords({"get", "flags", "cudnn.benchmark", "--watch", "-o", "json"}));
  ASSERT_TRUE(watch.AwaitOut("\n"));
  ASSERT_EQ(Ctl({"set", "cudnn.benchmark=true"}).code, 0);
  ASSERT_TRUE(watch.AwaitOut("FlagChange")) << watch.out() << watch.err();
  for (absl::string_view line : absl::StrSplit(watch.out(), '\n', absl::SkipEmpty())) {
    const json object = json::parse(std::string(line.data(), line.size()), nullptr, false);
    EXPECT_FALSE(object.is_discarded()) << line;
  }
  EXPECT_THAT(watch.out(), HasSubstr(R"("newValue":{"bool":true})"));
}

TEST_F(BackendctlTest, WaitRunsOutWith124) {
  EXPECT_EQ(Ctl({"wait", "--for=flag=cudnn.benchmark:true", "--timeout", "100ms"}).code, 124);
  EXPECT_EQ(Ctl({"wait", "--for=flag=cudnn.benchmark:false", "--timeout", "100ms"}).code, 0);
  EXPECT_EQ(Ctl({"wait", "--for=nothing"}).code, 2);
}

TEST_F(BackendctlTest, CompletesNamesThatTheDaemonKnows) {
  EXPECT_EQ(Ctl({"__complete", "--", "explain", "cudnn.benchmark_l"}).out,
            "cudnn.benchmark_limit\n");
  EXPECT_EQ(Ctl({"__complete", "--", "set", "cudnn.benchmark=t"}).out, "cudnn.benchmark=true\n");
  EXPECT_EQ(Ctl({"__complete", "--", "plan-cache", "show", "--device", "c"}).out, "cpu\n");
}

TEST_F(BackendctlTest, ShowsResizesAndClearsPlanCaches) {
  ASSERT_EQ(Ctl({"plan-cache", "resize", "7"}).code, 0);
  json caches = Json({"plan-cache", "show", "fft"});
  ASSERT_EQ(caches["items"].size(), 1u);
  EXPECT_EQ(caches["items"][0]["maxSize"], "7");
  EXPECT_EQ(Ctl({"plan-cache", "clear", "fft"}).code, 0);
  EXPECT_EQ(Ctl({"plan-cache", "show", "--device", "gpu-7"}).code, 3);
}

}  // namespace
}  // namespace backendd
