// backendctl: the daemon's command line. One sub-command a file, each one RPC.
#include <cstdio>

#include "client/cli/console.h"
#include "client/cli/exit_code.h"
#include "client/cli/grammar.h"

int main(int argc, char** argv) {
  using namespace backendd::cli;
  const Parsed parsed =
      Parse(Commands(), GlobalOptions(), std::vector<std::string>(argv + 1, argv + argc));
  if (parsed.is_error) {
    PrintError(parsed.arguments, parsed.text, parsed.next);
    return kExitUsage;
  }
  if (parsed.command == nullptr) {
    fwrite(parsed.text.data(), 1, parsed.text.size(), stdout);
    return kExitOk;
  }
  return parsed.command->run(parsed.arguments);
}
