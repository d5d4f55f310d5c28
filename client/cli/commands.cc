#include "client/cli/command.h"

namespace backendd::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> all;
    for (auto rows : {StatusCommands, GetCommands, DescribeCommands, SetCommands, RunCommands,
                      LeaseCommands, PlanCacheCommands, WaitCommands, CompletionCommands}) {
      for (Command& row : rows()) all.push_back(std::move(row));
    }
    return all;
  }();
  return commands;
}

const std::vector<Option>& GlobalOptions() {
  static const std::vector<Option> options = {
      {"--address", "SOCKET", "the daemon's Unix socket; else BACKENDD_ADDRESS"},
      {"--color", "WHEN", "colours", Names::kNone, {"auto", "always", "never"}},
      {"-v,--verbosity", "N", "6 prints the equal grpcurl line on stderr"}};
  return options;
}

}  // namespace backendd::cli
