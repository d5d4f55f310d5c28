// FLAG=VALUE words, read by the types that the catalogue gives each flag.
#ifndef BACKENDD_CLIENT_CLI_ASSIGNMENTS_H_
#define BACKENDD_CLIENT_CLI_ASSIGNMENTS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backendd/v1/flag.pb.h"
#include "client/cli/connection.h"

namespace backendd::cli {

// One DescribeFlag call a flag. Errors: ARGUMENT_INVALID, FLAG_VALUE_INVALID, those of
// DescribeFlag.
absl::StatusOr<std::vector<std::pair<std::string, v1::FlagValue>>> ReadAssignments(
    const Connection& connection, const std::vector<std::string>& words);

// NODE, or the device of --device.
v1::Scope ScopeOf(const Arguments& arguments);

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_ASSIGNMENTS_H_
