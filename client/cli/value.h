// Values of flags as people write them on a command line, and as tables show them.
#ifndef BACKENDD_CLIENT_CLI_VALUE_H_
#define BACKENDD_CLIENT_CLI_VALUE_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "backendd/v1/flag.pb.h"

namespace backendd::cli {

// true, 10, tf32, [flash, math], (true, false), none; "-" where no kind is set.
std::string ValueText(const v1::FlagValue& value);

// `text` as the first type of the catalogue's row that can be written so: none, bool, int, pair,
// list, then text. Whether the node allows the value is the daemon's to say. Errors:
// FLAG_VALUE_INVALID.
absl::StatusOr<v1::FlagValue> ParseValue(absl::string_view text,
                                         const v1::FlagDescription& description);

// "cudnn.benchmark=true" at the first '='. Errors: ARGUMENT_INVALID.
absl::StatusOr<std::pair<std::string, std::string>> SplitAssignment(absl::string_view text);

// 250ms, 30s, 1h30m. Errors: ARGUMENT_INVALID.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// A lease's or session's id: 16 hex digits. Errors: ID_INVALID.
absl::StatusOr<uint64_t> ParseId(absl::string_view text);
std::string IdText(uint64_t id);

// For people: 3m12s, 250ms, 2d4h.
std::string AgeText(absl::Duration age);
// 1.5 MiB.
std::string BytesText(uint64_t bytes);

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_VALUE_H_
