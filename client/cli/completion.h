// What may come next on a command line.
#ifndef BACKENDD_CLIENT_CLI_COMPLETION_H_
#define BACKENDD_CLIENT_CLI_COMPLETION_H_

#include <functional>
#include <string>
#include <vector>

#include "client/cli/command.h"

namespace backendd::cli {

// The daemon's names of one sort; `partial` is what is written of it so far.
using Ask = std::function<std::vector<std::string>(Names sort, absl::string_view partial)>;

// The candidates for the last of `words` (without the program's name; it may be empty).
std::vector<std::string> Candidates(const std::vector<Command>& commands,
                                    const std::vector<std::string>& words, const Ask& ask);

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_COMPLETION_H_
