// What is asked for, against the catalogue and the node: pure.
#ifndef BACKENDD_SERVER_NODE_FLAGS_CHECK_H_
#define BACKENDD_SERVER_NODE_FLAGS_CHECK_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "server/node/flags/flag_store.h"
#include "server/node/flags/snapshot.h"

namespace backendd::node {

// FlagStore::Check, against the values of `now`.
std::vector<Entry> CheckEntries(const Snapshot& now, absl::Span<const RequestedEntry> requested,
                                std::optional<SessionId> session, bool writing,
                                std::vector<Violation>* violations);

// Why CUDA cannot be deterministic with what the snapshot says; empty: it can, or nobody asked, or
// there is no CUDA device.
std::string NondeterministicBecause(const Snapshot& now, const FlagValue& workspace_text);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_CHECK_H_
