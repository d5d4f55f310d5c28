// The daemon's configuration: built-in < file < BACKENDD_SERVER_* < command line. Read and checked
// once, whole; every fault is told at once.
#ifndef BACKENDD_SERVER_NODE_CONFIG_H_
#define BACKENDD_SERVER_NODE_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/node/flags/layer.h"
#include "server/node/session/roles.h"
#include "shared/log/log.h"

namespace backendd::node {

struct Config {
  std::string socket;      // built in: /run/backendd/backendd.sock, or in XDG_RUNTIME_DIR
  std::string worker_dir;  // empty: beside the daemon's executable
  LogLevel log_level = LogLevel::kInfo;
  absl::Duration drain_timeout = absl::Seconds(10);
  std::string require_device;  // empty: none
  bool reflection = true;
  int64_t max_message_bytes = 4 << 20;
  int64_t connections_per_user = 4096;
  // quotas.*.
  int64_t sessions_per_user = 1024;
  int64_t sessions = 16384;
  int64_t leases_per_session = 256;
  int64_t leases = 65536;
  int64_t entries_per_lease = 128;
  int64_t waiters_per_key = 16;
  int64_t watches_per_session = 32;
  int64_t mutations_per_second = 200;
  int64_t mutation_burst = 400;

  RoleRules roles;                // `roles` and `default_role`
  std::vector<LayerEntry> flags;  // the flag layer "file"; sources are "file:LINE"

  std::map<std::string, std::string> origins;  // of every setting that is not built in
  std::vector<std::string> warnings;
};

// One scalar setting: `log_level` in the file, BACKENDD_SERVER_LOG_LEVEL, --log-level.
struct Setting {
  std::string name;
  std::string help;  // with what is allowed
};
const std::vector<Setting>& Settings();

struct ConfigSources {
  std::string file;       // empty: /etc/backendd/backendd.yaml where there is one
  std::string file_text;  // instead of a file, with `file` as its name; for tests
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> command_line;  // by setting
};
// ARGUMENT_INVALID with every fault, one a line: "backendd.yaml:3: unknown key 'sokcet'; did you
// mean 'socket'?".
absl::StatusOr<Config> LoadConfig(const ConfigSources& sources);

// Every setting with its value and where it comes from, one a line.
std::string PrintConfig(const Config& config);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_CONFIG_H_
