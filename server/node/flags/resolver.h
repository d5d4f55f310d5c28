// From the entries of all layers to what is in force: pure.
#ifndef BACKENDD_SERVER_NODE_FLAGS_RESOLVER_H_
#define BACKENDD_SERVER_NODE_FLAGS_RESOLVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "server/node/flags/facts.h"
#include "server/node/flags/snapshot.h"

namespace backendd::node {

// An entry with its owner. Immutable; shared by all snapshots that have it.
struct OwnedEntry {
  LayerEntry entry;
  LeaseId lease;      // 0: none
  SessionId session;  // private entries: whose; lease entries: the holder's
  int32_t priority = 0;
  uint64_t order = 0;  // of grants

  bool overlay() const { return entry.layer == Layer::kSession && bool{lease}; }
};
using Entries = std::vector<std::shared_ptr<const OwnedEntry>>;  // of one flag, in no order
using SessionEntries = std::map<FlagId, Entries>;                // of one session

// The node's and devices' entries of all layers but the sessions' own.
class SharedEntries {
 public:
  virtual ~SharedEntries() = default;
  virtual const Entries& EntriesOf(FlagId flag) const = 0;
};

// The place and the entries that a resolution looks at.
struct View {
  const SharedEntries& shared;
  const SessionEntries* session = nullptr;  // nullptr: no private value counts
  std::optional<DeviceId> device;
  const NodeFacts& facts;
};

// `since` is the winner's revision, 0 for the built-in.
Reading Resolve(FlagId flag, const View& view);

// Whether a read of the legacy precision name fails in a COMPAT session.
bool IsMixed(FlagId flag, const View& view);

// Highest first, the built-in last.
std::vector<Explanation> ExplainLayers(FlagId flag, const View& view);

// True where `a` counts before `b`: layer, device before node, overlays before bare values,
// priority, the later grant.
bool Outranks(const OwnedEntry& a, const OwnedEntry& b);

// The flags whose reading may follow an entry of `flag`, itself first.
const std::vector<FlagId>& DependantsOf(FlagId flag);

// Legacy names keep the value last written beside the leaves they wrote, for IsMixed and
// `consistent`. The flag that holds it for entries written `via`; nullopt: none is kept.
std::optional<FlagId> LegacyKeeper(FlagId via);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_RESOLVER_H_
