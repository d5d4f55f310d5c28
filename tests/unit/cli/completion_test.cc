#include "client/cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace backendd::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A node of two flags and one device.
std::vector<std::string> Node(Names sort, absl::string_view) {
  switch (sort) {
    case Names::kFlag:
      return {"cudnn.benchmark", "mkldnn.enabled"};
    case Names::kAssignment:
      return {"cudnn.benchmark=", "mkldnn.enabled="};
    case Names::kDevice:
      return {"cpu"};
    case Names::kLease:
      return {"00000000000000aa"};
    default:
      return {};
  }
}

std::vector<std::string> After(std::vector<std::string> words) {
  return Candidates(Commands(), words, Node);
}

TEST(Completion, FollowsTheCommandTree) {
  EXPECT_THAT(After({"pl"}), ElementsAre("plan-cache"));
  EXPECT_THAT(After({"lease", ""}), ElementsAre("hold", "release"));
  EXPECT_THAT(After({"--address", "/s", "sta"}), ElementsAre("status"));
  EXPECT_THAT(After({""}), Not(Contains("__complete")));
  EXPECT_THAT(After({"nothing", "here", ""}), IsEmpty());
}

TEST(Completion, KnowsOptionsAndTheirWords) {
  EXPECT_THAT(After({"get", "flags", "--wa"}), ElementsAre("--watch"));
  EXPECT_THAT(After({"get", "flags", "-o", "j"}), ElementsAre("json"));
  EXPECT_THAT(After({"get", "flags", "--output=w"}), ElementsAre("--output=wide"));
  EXPECT_THAT(After({"explain", "x", "--device", ""}), ElementsAre("cpu"));
  EXPECT_THAT(After({"status", "--co"}), ElementsAre("--color"));
}

TEST(Completion, AsksTheDaemonForNames) {
  EXPECT_THAT(After({"explain", "cud"}), ElementsAre("cudnn.benchmark"));
  EXPECT_THAT(After({"get", "flags", "mk"}), ElementsAre("mkldnn.enabled"));
  EXPECT_THAT(After({"get", "-o", "json", "leases", ""}), ElementsAre("00000000000000aa"));
  EXPECT_THAT(After({"describe", "device", ""}), ElementsAre("cpu"));
  EXPECT_THAT(After({"set", "mkldnn.enabled=true", "cud"}), ElementsAre("cudnn.benchmark="));
  EXPECT_THAT(After({"run", "--set", "cud"}), ElementsAre("cudnn.benchmark="));
}

TEST(Completion, LeavesACommandsOwnWordsAlone) {
  EXPECT_THAT(After({"run", "--set", "a=1", "--", "x"}), IsEmpty());
}

}  // namespace
}  // namespace backendd::cli
