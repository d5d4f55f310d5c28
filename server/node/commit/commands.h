// What workers are told of a snapshot. Pure.
#ifndef BACKENDD_SERVER_NODE_COMMIT_COMMANDS_H_
#define BACKENDD_SERVER_NODE_COMMIT_COMMANDS_H_

#include <set>

#include "backendd/control/v1/control.pb.h"
#include "server/node/flags/snapshot.h"

namespace backendd::node {

// The flags of `device` that differ between two snapshots, and all private values of `touched` and
// of every session that has some, where the device's own values moved.
control::v1::Snapshot ChangesFor(const DeviceId& device, const Snapshot& before,
                                 const Snapshot& after, const std::set<SessionId>& touched);
// Everything of `device`.
control::v1::Snapshot CompleteFor(const DeviceId& device, const Snapshot& snapshot);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_COMMIT_COMMANDS_H_
