// The command line against the rows of Commands(): which command, its arguments, or what is wrong.
#ifndef BACKENDD_CLIENT_CLI_GRAMMAR_H_
#define BACKENDD_CLIENT_CLI_GRAMMAR_H_

#include <string>
#include <vector>

#include "client/cli/command.h"

namespace backendd::cli {

struct Parsed {
  const Command* command = nullptr;  // null: `text` answers
  Arguments arguments;
  std::string text;  // help, or what is wrong with the words
  std::string next;  // after an error: what to try
  bool is_error = false;
};

// `words` without the program's name. Never throws, never exits.
Parsed Parse(const std::vector<Command>& commands, const std::vector<Option>& globals,
             const std::vector<std::string>& words);

// "--output" of "-o,--output".
absl::string_view LongName(absl::string_view option);

// The command that `words` begin with, and how many words it took; null where there is none.
const Command* FindCommand(const std::vector<Command>& commands,
                           const std::vector<std::string>& words, size_t* used);

// First words of commands that people see, in order, each once; after "lease": hold, release.
std::vector<absl::string_view> NextWords(const std::vector<Command>& commands,
                                         absl::string_view group);

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_GRAMMAR_H_
