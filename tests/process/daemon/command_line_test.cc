// The daemon's command line and configuration, with the real program: exit status and what it says.
#include <gmock/gmock.h>

#include "tests/process/daemon/daemon_process.h"

namespace backendd {
namespace {

using testing::HasSubstr;

constexpr char kHead[] = "apiVersion: backendd.dev/v1\nkind: DaemonConfig\n";

class CommandLine : public DaemonProcess {
 protected:
  std::string File(const std::string& body) const {
    const std::string path = directory_ + "/c.yaml";
    std::ofstream(path) << kHead << body;
    return path;
  }
};

TEST_F(CommandLine, HelpAndVersionAreNoErrors) {
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--help"}), 0);
  EXPECT_THAT(Log(), HasSubstr("--drain-timeout"));
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--version"}), 0);
  EXPECT_THAT(Log(), HasSubstr("backendd 0."));
}

TEST_F(CommandLine, AnUnknownOptionIsAConfigurationError) {
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--sokcet", "/x"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--sokcet"));
}

TEST_F(CommandLine, AGoodFilePassesTheCheckAndTouchesNoSocket) {
  const std::string file = File("socket: " + directory_ + "/s\nflags: {cudnn.benchmark: true}\n");
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--check-config", file}), 0);
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(CommandLine, ABadFileFailsTheCheckWithEveryFaultAndItsLine) {
  const std::string file = File("sokcet: /x\nflags:\n  cudnn.benchmark_limit: -3\n");
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--check-config", file}), 2);
  EXPECT_THAT(Log(), HasSubstr(file + ":3: unknown key 'sokcet'; did you mean 'socket'?"));
  EXPECT_THAT(Log(), HasSubstr(file + ":5: "));
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--config", file}), 2);
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--check-config", directory_ + "/none"}), 2);
}

TEST_F(CommandLine, PrintConfigSaysWhereEachValueComesFrom) {
  const std::string file = File("log_level: debug\n");
  EXPECT_EQ(
      RunToEnd({BIN "/backendd", "--config", file, "--drain-timeout", "3s", "--print-config"}), 0);
  EXPECT_THAT(Log(), HasSubstr("log_level: debug  # " + file + ":3"));
  EXPECT_THAT(Log(), HasSubstr("drain_timeout: 3s  # --drain-timeout"));
  EXPECT_THAT(Log(), HasSubstr("reflection: on  # built in"));
}

}  // namespace
}  // namespace backendd
