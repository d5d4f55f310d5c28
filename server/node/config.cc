#include "server/node/config.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/listener/socket.h"
#include "server/node/config_file.h"
#include "shared/status/error.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

constexpr char kDefaultFile[] = "/etc/backendd/backendd.yaml";
constexpr char kVariablePrefix[] = "BACKENDD_SERVER_";

// What a setting takes: parses into the config, or says what is allowed; and prints it.
struct Row {
  Setting setting;
  std::function<std::string(Config*, const std::string&)> set;  // empty: taken
  std::function<std::string(const Config&)> get;
};

Row Text(const char* name, const char* help, std::string Config::*field,
         std::vector<std::string> allowed = {}) {
  return {
      {name, help},
      [=](Config* config, const std::string& text) -> std::string {
        if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end())
          return absl::StrJoin(allowed, ", ");
        config->*field = text;
        return "";
      },
      [=](const Config& config) { return config.*field; }};
}

Row Number(const char* name, const char* help, int64_t Config::*field, int64_t least,
           int64_t most) {
  return {{name, help},
          [=](Config* config, const std::string& text) -> std::string {
            int64_t value;
            if (!absl::SimpleAtoi(text, &value) || value < least || value > most)
              return absl::StrCat(least, " to ", most);
            config->*field = value;
            return "";
          },
          [=](const Config& config) { return absl::StrCat(config.*field); }};
}

const std::vector<Row>& Rows() {
  constexpr int64_t kMany = 100'000'000;
  static const auto* rows = new std::vector<Row>{
      {{"socket", "path of the API socket, at most 107 bytes"},
       [](Config* config, const std::string& text) -> std::string {
         if (const absl::Status status = CheckSocketPath(text); !status.ok())
           return Str(status.message());
         config->socket = text;
         return "";
       },
       [](const Config& config) { return config.socket; }},
      Text("worker_dir", "where the workers' programs are; empty: beside this program",
           &Config::worker_dir),
      {{"log_level", "debug, info, warning or error"},
       [](Config* config, const std::string& text) {
         return LogLevelFromName(text, &config->log_level) ? "" : "debug, info, warning, error";
       },
       [](const Config& config) { return LogLevelName(config.log_level); }},
      {{"drain_timeout", "time that holders get at SIGTERM: 0s to 1h"},
       [](Config* config, const std::string& text) {
         absl::Duration value;
         if (!absl::ParseDuration(text, &value) || value < absl::ZeroDuration() ||
             value > absl::Hours(1))
           return "0s to 1h, such as 10s or 500ms";
         config->drain_timeout = value;
         return "";
       },
       [](const Config& config) { return absl::FormatDuration(config.drain_timeout); }},
      Text("require_device", "a device without which the daemon ends with 1: cpu or cuda",
           &Config::require_device, {"", "cpu", "cuda"}),
      {{"reflection", "whether grpcurl may ask what there is: on or off"},
       [](Config* config, const std::string& text) {
         if (text != "on" && text != "off" && text != "true" && text != "false") return "on, off";
         config->reflection = text == "on" || text == "true";
         return "";
       },
       [](const Config& config) { return config.reflection ? "on" : "off"; }},
      {{"default_role",
        "of who matches no rule: none, observer, worker, operator, scheduler or admin"},
       [](Config* config, const std::string& text) {
         const std::optional<Role> role = RoleFromName(text);
         if (role.has_value()) config->roles.default_role = *role;
         return role.has_value() ? "" : "none, observer, worker, operator, scheduler, admin";
       },
       [](const Config& config) { return Str(RoleName(config.roles.default_role)); }},
      Number("limits.max_message_bytes", "largest request", &Config::max_message_bytes, 65536,
             int64_t{1} << 30),
      Number("limits.connections_per_user", "connections of one user",
             &Config::connections_per_user, 1, kMany),
      Number("quotas.sessions_per_user", "sessions of one user", &Config::sessions_per_user, 1,
             kMany),
      Number("quotas.sessions", "sessions of the node", &Config::sessions, 1, kMany),
      Number("quotas.leases_per_session", "leases of one session", &Config::leases_per_session, 1,
             kMany),
      Number("quotas.leases", "leases of the node", &Config::leases, 1, kMany),
      Number("quotas.entries_per_lease", "flags of one lease", &Config::entries_per_lease, 1,
             kMany),
      Number("quotas.waiters_per_key", "waiters of one user for one flag", &Config::waiters_per_key,
             0, kMany),
      Number("quotas.watches_per_session", "watches of one session", &Config::watches_per_session,
             1, kMany),
      Number("quotas.mutations_per_second",
             "grants and writes of one user that others see; 0: unlimited",
             &Config::mutations_per_second, 0, kMany),
      Number("quotas.mutation_burst", "how many of them may come at once", &Config::mutation_burst,
             1, kMany),
  };
  return *rows;
}

const Row* FindRow(const std::string& name) {
  for (const Row& row : Rows())
    if (row.setting.name == name) return &row;
  return nullptr;
}

std::string VariableOf(const std::string& name) {
  return kVariablePrefix + absl::StrReplaceAll(absl::AsciiStrToUpper(name), {{".", "_"}});
}

std::string DefaultSocket(const std::map<std::string, std::string>& environment) {
  const bool system = access("/run/backendd", W_OK) == 0 || geteuid() == 0;
  const auto runtime = environment.find("XDG_RUNTIME_DIR");
  if (system || runtime == environment.end()) return "/run/backendd/backendd.sock";
  return runtime->second + "/backendd/backendd.sock";
}

}  // namespace

const std::vector<Setting>& Settings() {
  static const auto* settings = [] {
    auto* made = new std::vector<Setting>;
    for (const Row& row : Rows()) made->push_back(row.setting);
    return made;
  }();
  return *settings;
}

absl::StatusOr<Config> LoadConfig(const ConfigSources& sources) {
  Config config;
  config.socket = DefaultSocket(sources.environment);
  std::vector<std::string> faults;
  const auto take = [&](const std::string& name, const std::string& text,
                        const std::string& origin) {
    const std::string allowed = FindRow(name)->set(&config, text);
    if (allowed.empty()) {
      config.origins[name] = origin;
    } else {
      faults.push_back(
          absl::StrCat(origin, ": '", name, "' does not accept '", text, "': ", allowed));
    }
  };

  std::string file = sources.file, text = sources.file_text;
  if (file.empty() && access(kDefaultFile, F_OK) == 0) file = kDefaultFile;
  if (!file.empty() && text.empty()) {
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream read;
    read << stream.rdbuf();
    if (!stream.is_open()) faults.push_back(absl::StrCat(file, ": cannot be read"));
    text = read.str();
  }
  if (!file.empty() && faults.empty()) {
    std::vector<FileScalar> scalars;
    ReadConfigFile(file, text, &scalars, &config, &faults);
    for (const FileScalar& scalar : scalars)
      take(scalar.name, scalar.text, absl::StrCat(file, ":", scalar.line));
  }
  for (const auto& [name, value] : sources.environment) {
    if (!absl::StartsWith(name, kVariablePrefix)) continue;
    const std::string& variable = name;  // clang 14 captures no structured binding
    const auto row = std::find_if(Rows().begin(), Rows().end(), [&](const Row& candidate) {
      return VariableOf(candidate.setting.name) == variable;
    });
    if (row != Rows().end()) {
      take(row->setting.name, value, name);
    } else {  // no error: a cluster gives every pod variables of services that it never asked for
      config.warnings.push_back(absl::StrCat("the variable ", name, " sets nothing"));
    }
  }
  for (const auto& [name, value] : sources.command_line)
    take(name, value, absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}})));
  if (!faults.empty()) return Error(Reason::kArgumentInvalid, absl::StrJoin(faults, "\n"));
  return config;
}

std::string PrintConfig(const Config& config) {
  std::string out;
  for (const Row& row : Rows()) {
    const auto origin = config.origins.find(row.setting.name);
    absl::StrAppend(&out, row.setting.name, ": ", row.get(config), "  # ",
                    origin == config.origins.end() ? "built in" : origin->second, "\n");
  }
  for (const RoleRules::Rule& rule : config.roles.rules)
    absl::StrAppend(&out, "role: ", RoleName(rule.role), " for ",
                    rule.uid ? absl::StrCat("uid ", *rule.uid) : absl::StrCat("gid ", *rule.gid),
                    "\n");
  for (const LayerEntry& entry : config.flags)
    absl::StrAppend(&out, "flag: ", Catalogue::Get().info(entry.flag).name,
                    entry.device ? absl::StrCat(" on ", *entry.device) : "", " = ",
                    ToText(entry.value), "  # ", entry.source, "\n");
  return out;
}

}  // namespace backendd::node
