// What a command is: a row of data with a function. The grammar, the help and the completion all
// read the same rows, so that none of them can forget one.
#ifndef BACKENDD_CLIENT_CLI_COMMAND_H_
#define BACKENDD_CLIENT_CLI_COMMAND_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace backendd::cli {

// What a word on the command line names; completion asks the daemon for the names.
enum class Names { kNone, kFlag, kAssignment, kLease, kSession, kDevice, kCommandLine };

struct Option {
  absl::string_view name;   // "--device"; "-o" and the like as "-o,--output"
  absl::string_view value;  // "DEVICE"; empty: a switch
  absl::string_view help;
  Names names = Names::kNone;
  std::vector<absl::string_view> words = {};  // the only values, where they are a closed list
  bool repeated = false;
};

struct Positional {
  absl::string_view name;  // "FLAG"
  bool required = true;
  bool repeated = false;
  Names names = Names::kNone;
  std::vector<absl::string_view> words = {};
};

// What was written, by Option::name (the long one) and Positional::name.
class Arguments {
 public:
  bool Has(absl::string_view name) const { return values_.count(std::string(name)) > 0; }
  const std::vector<std::string>& All(absl::string_view name) const {
    static const std::vector<std::string> none;
    const auto found = values_.find(std::string(name));
    return found == values_.end() ? none : found->second;
  }
  std::string Get(absl::string_view name, absl::string_view otherwise = "") const {
    const auto& all = All(name);
    return all.empty() ? std::string(otherwise) : all.back();
  }
  void Put(absl::string_view name, std::vector<std::string> values) {
    values_[std::string(name)] = std::move(values);
  }

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

// Runs a command; returns the exit code.
using Run = int (*)(const Arguments& arguments);

struct Command {
  absl::string_view path;  // "status", "lease hold"
  absl::string_view summary;
  std::vector<Positional> positionals;
  std::vector<Option> options;
  std::vector<absl::string_view> examples;  // at least two; help opens with them
  Run run = nullptr;
  bool hidden = false;
};

// Every command; options of all of them (--address, --color, -v).
const std::vector<Command>& Commands();
const std::vector<Option>& GlobalOptions();

// Options that several commands share.
inline Option DeviceOption() {
  return {"--device", "DEVICE", "on this device: a uuid, cpu, or an index", Names::kDevice};
}
inline Option OutputOption(std::vector<absl::string_view> words = {"table", "json"}) {
  return {"-o,--output", "FORMAT", "how to print", Names::kNone, std::move(words)};
}

// One file each defines these rows.
std::vector<Command> StatusCommands();  // status, health, version
std::vector<Command> GetCommands();
std::vector<Command> DescribeCommands();  // describe, explain
std::vector<Command> SetCommands();       // set, unset
std::vector<Command> LeaseCommands();     // lease hold, lease release
std::vector<Command> RunCommands();
std::vector<Command> PlanCacheCommands();  // plan-cache show, clear, resize
std::vector<Command> WaitCommands();
std::vector<Command> CompletionCommands();  // completion, __complete

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_COMMAND_H_
