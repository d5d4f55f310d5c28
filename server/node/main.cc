// backendd: parses its command line, serves until a signal, drains, ends.
// Exit status: 0 drained, 1 failure, 2 configuration.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_replace.h"
#include "server/node/config.h"
#include "server/node/daemon.h"
#include "server/node/workers/cpu_kernels.h"
#include "shared/log/log.h"

namespace {

using backendd::node::Config;
using backendd::node::ConfigSources;
using backendd::node::Daemon;

constexpr int kFailure = 1, kConfiguration = 2;

// Waits for a signal that ends; false where none came in time.
bool AwaitEnd(const sigset_t& signals, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&signals, nullptr, &limit);
  if (signal == SIGHUP) backendd::LogInfo("SIGHUP: the configuration is read at start only");
  return signal == SIGTERM || signal == SIGINT;
}

int Serve(const Config& config, const sigset_t& signals) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  const std::string executable(path, size > 0 ? static_cast<size_t>(size) : 0);
  for (const std::string& warning : config.warnings) backendd::LogWarning(warning);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Create(config, executable.substr(0, executable.rfind('/')));
  if (!daemon.ok()) {
    backendd::LogError("backendd does not start", {{"error", daemon.status()}});
    return kFailure;
  }
  while (!AwaitEnd(signals, absl::Hours(1))) {
  }
  (*daemon)->Drain([&](absl::Duration wait) { return AwaitEnd(signals, wait); });
  // From here on a signal kills: nothing may keep a daemon that should end.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (*daemon)->Stop();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // First of all, before any thread: as process 1 of a container an unhandled signal does nothing.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  CLI::App app("backendd: the backend switches and devices of this node as a service");
  app.set_version_flag("--version", "backendd " BACKENDD_VERSION);
  ConfigSources sources;
  std::string check;
  bool print = false;
  app.add_option("--config", sources.file,
                 "configuration file (default: /etc/backendd/backendd.yaml, where there is one)");
  app.add_option("--check-config", check, "check this file and exit: 0 or 2");
  app.add_flag("--print-config", print, "print every setting with its origin and exit");
  std::map<std::string, std::string> given;
  std::map<std::string, CLI::Option*> options;
  for (const auto& setting : backendd::node::Settings())
    options[setting.name] = app.add_option("--" + absl::StrReplaceAll(setting.name, {{"_", "-"}}),
                                           given[setting.name], setting.help);
  app.footer(
      "Settings stand in the file and in BACKENDD_SERVER_<NAME> too; the command line wins.\n"
      "Exit status: 0 drained, 1 failure, 2 configuration.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kConfiguration;
  }
  for (const auto& [name, option] : options)
    if (option->count() > 0) sources.command_line[name] = given[name];
  if (!check.empty()) {
    sources = ConfigSources{.file = check};
  } else {
    sources.environment = backendd::node::OwnEnvironment();
  }
  const absl::StatusOr<Config> config = backendd::node::LoadConfig(sources);
  if (!config.ok()) {
    std::fprintf(stderr, "%s\n", std::string(config.status().message()).c_str());
    return kConfiguration;
  }
  if (!check.empty()) return 0;
  if (print) {
    std::fputs(backendd::node::PrintConfig(*config).c_str(), stdout);
    return 0;
  }
  backendd::SetUpLog(config->log_level);
  return Serve(*config, signals);
}
