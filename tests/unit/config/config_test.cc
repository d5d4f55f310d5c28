#include "server/node/config.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace backendd::node {
namespace {

constexpr char kHead[] = "apiVersion: backendd.dev/v1\nkind: DaemonConfig\n";

absl::StatusOr<Config> Load(const std::string& body) {
  return LoadConfig({.file = "c.yaml", .file_text = kHead + body});
}
std::string Faults(const std::string& body) {
  const absl::StatusOr<Config> config = Load(body);
  EXPECT_THAT(config, HasReason(Reason::kArgumentInvalid));
  return std::string(config.status().message());
}

using testing::HasSubstr;

TEST(Config, CommandLineBeatsEnvironmentBeatsFile) {
  ConfigSources sources;
  sources.file = "c.yaml";
  sources.file_text = std::string(kHead) + "socket: /f\nlog_level: error\ndrain_timeout: 1s\n";
  sources.environment = {{"BACKENDD_SERVER_SOCKET", "/e"}, {"BACKENDD_SERVER_LOG_LEVEL", "debug"}};
  sources.command_line = {{"socket", "/c"}};
  const auto config = LoadConfig(sources);
  ASSERT_OK(config);
  EXPECT_EQ(config->socket, "/c");
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
  EXPECT_EQ(config->drain_timeout, absl::Seconds(1));
  EXPECT_EQ(config->origins.at("socket"), "--socket");
  EXPECT_EQ(config->origins.at("log_level"), "BACKENDD_SERVER_LOG_LEVEL");
  EXPECT_EQ(config->origins.at("drain_timeout"), "c.yaml:5");
  EXPECT_THAT(PrintConfig(*config), HasSubstr("drain_timeout: 1s  # c.yaml:5\n"));
  EXPECT_THAT(PrintConfig(*config), HasSubstr("reflection: on  # built in\n"));
}

TEST(Config, EveryFaultIsToldAtOnceWithItsLineAndASuggestion) {
  const std::string faults = Faults(
      "sokcet: /x\n"
      "log_level: loud\n"
      "log_level: info\n"
      "quotas: {leasse: 3, sessions: -1}\n"
      "flags: {cudnn.benchmrk: true, cudnn.benchmark_limit: -3}\n"
      "roles: [{uid: 5, role: king}, {role: admin}]\n");
  EXPECT_THAT(faults, HasSubstr("c.yaml:3: unknown key 'sokcet'; did you mean 'socket'?"));
  EXPECT_THAT(faults, HasSubstr("c.yaml:4: 'log_level' does not accept 'loud'"));
  EXPECT_THAT(faults, HasSubstr("c.yaml:5: the key 'log_level' is there twice"));
  EXPECT_THAT(faults, HasSubstr("c.yaml:6: unknown key 'leasse'; did you mean 'leases'?"));
  EXPECT_THAT(faults, HasSubstr("c.yaml:6: 'quotas.sessions' does not accept '-1'"));
  EXPECT_THAT(faults, HasSubstr("cudnn.benchmrk"));
  EXPECT_THAT(faults, HasSubstr("-3"));
  EXPECT_THAT(faults, HasSubstr("unknown role 'king'"));
  EXPECT_THAT(faults, HasSubstr("either a uid or a gid"));
}

TEST(Config, FlagsOfTheFileAreALayerWithTheLineAsTheirSource) {
  const auto config = Load(
      "flags:\n  cudnn.benchmark: true\n  cudnn.benchmark_limit: 7\n"
      "devices:\n  cpu:\n    flags:\n      mkldnn.matmul.fp32_precision: bf16\n");
  ASSERT_OK(config);
  ASSERT_EQ(config->flags.size(), 3u);
  EXPECT_EQ(config->flags[0].flag, FlagIdOf("cudnn.benchmark"));
  EXPECT_EQ(config->flags[0].value, FlagValue(true));
  EXPECT_EQ(config->flags[0].source, "file:4");
  EXPECT_EQ(config->flags[0].layer, Layer::kFile);
  EXPECT_EQ(config->flags[1].value, FlagValue(int64_t{7}));
  EXPECT_EQ(config->flags[2].device, DeviceId("cpu"));
  EXPECT_EQ(config->flags[2].value, FlagValue(std::string("bf16")));
}

TEST(Config, ALegacyNameWritesTheLeavesItStandsFor) {
  const auto config = Load("flags: {cuda.matmul.allow_tf32: true}\n");
  ASSERT_OK(config);
  ASSERT_FALSE(config->flags.empty());
  for (const LayerEntry& entry : config->flags)
    EXPECT_EQ(entry.via, FlagIdOf("cuda.matmul.allow_tf32"));
}

TEST(Config, AFileWithoutKindOrVersionIsNone) {
  const auto config = LoadConfig({.file = "c.yaml", .file_text = "socket: /x\n"});
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("apiVersion"));
  EXPECT_THAT(std::string(config.status().message()), HasSubstr("DaemonConfig"));
}

TEST(Config, AliasesDepthSizeAndBrokenYamlAreRefused) {
  EXPECT_THAT(Faults("socket: &a /x\nworker_dir: *a\n"), HasSubstr("c.yaml:4: aliases"));
  EXPECT_THAT(Faults("flags: " + std::string(40, '[') + std::string(40, ']') + "\n"),
              HasSubstr("32 levels"));
  EXPECT_THAT(Faults("flags: " + std::string(100000, '[') + "\n"), HasSubstr("c.yaml:3"));
  EXPECT_THAT(Faults("#" + std::string(1 << 20, 'x')), HasSubstr("at most 1048576"));
  EXPECT_THAT(Faults("socket: [\n"), HasSubstr("c.yaml:"));
}

TEST(Config, ALongSocketPathIsNamedWithItsLength) {
  const std::string faults = Faults("socket: /" + std::string(150, 's') + "\n");
  EXPECT_THAT(faults, HasSubstr("151 bytes"));
  EXPECT_THAT(faults, HasSubstr("/sss"));
}

TEST(Config, AVariableThatSetsNothingIsAWarning) {
  const auto config = LoadConfig({.environment = {{"BACKENDD_SERVER_SERVICE_HOST", "10.0.0.1"}}});
  ASSERT_OK(config);
  ASSERT_EQ(config->warnings.size(), 1u);
  EXPECT_THAT(config->warnings[0], HasSubstr("BACKENDD_SERVER_SERVICE_HOST"));
}

TEST(Config, RolesKeepTheirOrder) {
  const auto config =
      Load("default_role: observer\nroles: [{uid: 5, role: operator}, {gid: 7, role: worker}]\n");
  ASSERT_OK(config);
  ASSERT_EQ(config->roles.rules.size(), 2u);
  EXPECT_EQ(config->roles.rules[0].uid, 5u);
  EXPECT_EQ(config->roles.rules[0].role, Role::kOperator);
  EXPECT_EQ(config->roles.rules[1].gid, 7u);
  EXPECT_EQ(config->roles.default_role, Role::kObserver);
}

}  // namespace
}  // namespace backendd::node
