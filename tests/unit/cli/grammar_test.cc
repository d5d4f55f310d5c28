#include "client/cli/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace backendd::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Parsed ParseLine(absl::string_view line) {
  return Parse(Commands(), GlobalOptions(), absl::StrSplit(line, ' ', absl::SkipEmpty()));
}

TEST(Grammar, OptionsAndPositionalsComeInAnyOrder) {
  for (const char* line : {"--address /s set a.b=1 c=(true,false) --device cpu",
                           "set --device cpu a.b=1 --address /s c=(true,false)"}) {
    const Parsed parsed = ParseLine(line);
    ASSERT_NE(parsed.command, nullptr) << parsed.text;
    EXPECT_EQ(parsed.command->path, "set");
    EXPECT_THAT(parsed.arguments.All("ASSIGNMENT"), ElementsAre("a.b=1", "c=(true,false)"));
    EXPECT_EQ(parsed.arguments.Get("--device"), "cpu");
    EXPECT_EQ(parsed.arguments.Get("--address"), "/s");
  }
}

TEST(Grammar, SwitchesAndShortNamesAndEqualsSignsWork) {
  const Parsed parsed = ParseLine("get flags --watch -o json -v=6");
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_TRUE(parsed.arguments.Has("--watch"));
  EXPECT_EQ(parsed.arguments.Get("--output"), "json");
  EXPECT_EQ(parsed.arguments.Get("--verbosity"), "6");
  EXPECT_FALSE(parsed.arguments.Has("--device"));
}

TEST(Grammar, WhatFollowsTheMarkerIsNotLookedAt) {
  const Parsed parsed = ParseLine("run --set a=1 --set b=2 -- cmd --set c=3 -- --help");
  ASSERT_NE(parsed.command, nullptr) << parsed.text;
  EXPECT_THAT(parsed.arguments.All("--set"), ElementsAre("a=1", "b=2"));
  EXPECT_THAT(parsed.arguments.All("CMD"), ElementsAre("cmd", "--set", "c=3", "--", "--help"));
}

TEST(Grammar, RunWithoutACommandIsRefused) {
  EXPECT_TRUE(ParseLine("run --set a=1").is_error);
  EXPECT_TRUE(ParseLine("run --set a=1 --").is_error);
  EXPECT_TRUE(ParseLine("status -- x").is_error);
}

TEST(Grammar, UnknownCommandsNameTheNearOnes) {
  EXPECT_THAT(ParseLine("staus").text, HasSubstr("did you mean status"));
  EXPECT_THAT(ParseLine("lease relase").next, HasSubstr("backendctl lease release"));
  EXPECT_THAT(ParseLine("lease").text, HasSubstr("hold, release"));
  EXPECT_TRUE(ParseLine("xyzzyxyzzy").is_error);
  EXPECT_TRUE(ParseLine("").is_error);
}

TEST(Grammar, CommandsOfOtherTimesDoNotExist) {
  for (const char* line : {"policy", "top", "drain", "reload", "cdi generate", "support-bundle"}) {
    EXPECT_TRUE(ParseLine(line).is_error) << line;
  }
}

TEST(Grammar, WrongWordsAreErrorsThatShowTheShape) {
  for (const char* line : {"get", "get nothing", "get flags -o xml", "set", "status extra",
                           "status --nope", "explain", "get flags --device"}) {
    const Parsed parsed = ParseLine(line);
    EXPECT_TRUE(parsed.is_error) << line;
    EXPECT_THAT(parsed.next, StartsWith("backendctl ")) << line;
  }
}

TEST(Grammar, WordsOfAFixedListAreGuessedToo) {
  EXPECT_THAT(ParseLine("get flgs").text, HasSubstr("did you mean flags?"));
  EXPECT_THAT(ParseLine("get flags -o jsno").text, HasSubstr("did you mean json?"));
}

TEST(Grammar, OverviewFitsATerminalAndCutsNoName) {
  const std::string help = ParseLine("--help").text;
  for (absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(help, HasSubstr("grpc.health.v1"));
}

TEST(Grammar, HelpOfEveryCommandOpensWithTwoExamplesThatParse) {
  for (const Command& command : Commands()) {
    if (command.hidden) continue;
    const Parsed help = ParseLine(absl::StrCat(command.path, " --help"));
    EXPECT_FALSE(help.is_error);
    EXPECT_THAT(help.text, StartsWith("  backendctl "));
    ASSERT_GE(command.examples.size(), 2u) << command.path;
    for (absl::string_view example : command.examples) {
      EXPECT_THAT(help.text, HasSubstr(std::string(example)));
      ASSERT_TRUE(absl::ConsumePrefix(&example, "backendctl ")) << command.path;
      const Parsed parsed = ParseLine(example);
      ASSERT_NE(parsed.command, nullptr) << example << ": " << parsed.text;
      EXPECT_EQ(parsed.command->path, command.path) << example;
    }
  }
  EXPECT_THAT(ParseLine("--help").text, StartsWith("  backendctl "));
  EXPECT_THAT(ParseLine("lease --help").text, HasSubstr("lease hold"));
}

TEST(Grammar, NoTwoCommandsShareAPathAndNoOptionTwoMeanings) {
  std::set<std::string> paths;
  for (const Command& command : Commands()) {
    EXPECT_TRUE(paths.emplace(command.path).second) << command.path;
    std::set<std::string> names;
    for (const auto* options : {&command.options, &GlobalOptions()}) {
      for (const Option& option : *options) {
        for (absl::string_view name : absl::StrSplit(option.name, ',')) {
          EXPECT_TRUE(names.emplace(name).second) << command.path << " " << name;
        }
      }
    }
  }
}

TEST(Grammar, NextWordsLeaveHiddenCommandsOut) {
  EXPECT_THAT(NextWords(Commands(), "plan-cache"), ElementsAre("show", "clear", "resize"));
  EXPECT_THAT(NextWords(Commands(), ""), ::testing::Not(Contains("__complete")));
}

}  // namespace
}  // namespace backendd::cli
