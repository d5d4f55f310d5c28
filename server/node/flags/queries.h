// Queries that take arguments, answered from a snapshot.
#ifndef BACKENDD_SERVER_NODE_FLAGS_QUERIES_H_
#define BACKENDD_SERVER_NODE_FLAGS_QUERIES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/node/flags/snapshot.h"

namespace backendd::node {

// The answer of any flag or query: a plain reading where it takes no arguments. `session` given:
// with its private values. ARGUMENT_INVALID: arguments missing, unknown or not asked for, with what
// is known; OP_UNSUPPORTED: a query over tensors; PRECISION_MIXED.
absl::StatusOr<Reading> Answer(const Snapshot& snapshot, FlagId flag,
                               absl::Span<const std::string> arguments,
                               const std::optional<DeviceId>& device,
                               std::optional<SessionId> session);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_QUERIES_H_
