// What commands print: data on stdout, all else on stderr.
#ifndef BACKENDD_CLIENT_CLI_CONSOLE_H_
#define BACKENDD_CLIENT_CLI_CONSOLE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/command.h"
#include "client/cli/table.h"
#include "google/protobuf/message.h"

namespace backendd::cli {

// Whether to colour a stream: --color=always|never, else a terminal without NO_COLOR and TERM=dumb.
bool Coloured(const Arguments& arguments, int fd);

// A table on stdout, cut to the terminal's width if stdout is one.
void Print(const Arguments& arguments, const Table& table);

// "name:  value" lines with aligned values; pairs without a value are left out.
using Fields = std::vector<std::pair<absl::string_view, std::string>>;
void Print(const Fields& fields);

// A message as JSON on one line. Its `{` is followed by apiVersion and kind where `kind` is given.
std::string JsonText(const google::protobuf::Message& message, absl::string_view kind = "");
// A document of `items` (JSON each): {"apiVersion", "kind": KINDList, "items": [...]}.
std::string JsonList(absl::string_view kind, const std::vector<std::string>& items);
void PrintLine(absl::string_view line);  // flushed

bool WantsJson(const Arguments& arguments);

// "SERVING" of "DEVICE_STATE_SERVING".
std::string Word(const std::string& name, absl::string_view prefix);

// `error: ...`, each violation, `try: ...` on stderr; the exit code of the status.
int Fail(const Arguments& arguments, const absl::Status& status);
void PrintError(const Arguments& arguments, absl::string_view what, absl::string_view next);

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_CONSOLE_H_
