// All effective values at one revision. Immutable; shared by readers, watchers and the workers'
// commits.
#ifndef BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_H_
#define BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/flags/catalogue.h"
#include "server/flags/precision.h"
#include "server/node/flags/facts.h"
#include "server/node/flags/layer.h"
#include "shared/flag_value.h"
#include "shared/ids.h"

namespace backendd::node {

// The effective value of one flag at one place.
struct Reading {
  std::optional<FlagValue> value;  // nullopt: unavailable
  std::string unavailable;         // why
  Layer layer = Layer::kBuiltIn;
  std::string source;
  uint64_t since = 0;              // the revision at which the value became what it is
  std::optional<bool> consistent;  // legacy precision names only
  std::optional<FlagValue>
      requested;         // the winner's own value, where the walk made another effective
  FlagValue entry;       // fp32 tree: the entry before the walk
  bool written = false;  // fp32 tree: a layer above the built-in wrote the entry
};

// A value that moved. `device` empty: the node.
struct ValueChange {
  FlagId flag;
  std::optional<DeviceId> device;
  std::optional<FlagValue> before, after;  // nullopt: unavailable
};

// One line of ExplainFlag.
struct Explanation {
  LayerEntry entry;
  std::optional<LeaseId> lease;
  std::optional<SessionId> session;
  bool winner = false;
};

class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual uint64_t revision() const = 0;
  virtual const std::string& epoch() const = 0;
  virtual absl::Time time() const = 0;  // wall, for people
  // What the readings that answer for this node rest on.
  virtual const NodeFacts& facts() const = 0;
  // Devices with readings of their own, "cpu" first.
  virtual const std::vector<DeviceId>& devices() const = 0;
  // The node's reading, or a device's.
  virtual const Reading& Read(FlagId flag, const std::optional<DeviceId>& device) const = 0;
  // The same with a session's private values. PRECISION_MIXED where the session is COMPAT and a
  // legacy read is mixed.
  virtual absl::StatusOr<Reading> ReadFor(FlagId flag, const std::optional<DeviceId>& device,
                                          SessionId session) const = 0;
  // Flags whose reading on `device` differs for this session; empty for sessions without private
  // values.
  virtual std::vector<FlagId> PrivateFlags(SessionId session,
                                           const std::optional<DeviceId>& device) const = 0;
  virtual std::vector<SessionId> SessionsWithPrivateValues() const = 0;
  // Every layer's entries of a flag, highest first, the built-in last.
  virtual std::vector<Explanation> Explain(FlagId flag, const std::optional<DeviceId>& device,
                                           std::optional<SessionId> session) const = 0;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_H_
