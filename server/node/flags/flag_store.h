// The layers of every flag, and what they come to: one immutable snapshot per revision.
#ifndef BACKENDD_SERVER_NODE_FLAGS_FLAG_STORE_H_
#define BACKENDD_SERVER_NODE_FLAGS_FLAG_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/flags/catalogue.h"
#include "server/node/flags/layer.h"
#include "server/node/flags/snapshot.h"
#include "shared/clock.h"
#include "shared/flag_value.h"
#include "shared/ids.h"
#include "shared/status/error.h"

namespace backendd::node {

// One flag at one place, as a request names it; `field` is its path in the request, for violations.
struct RequestedEntry {
  std::string flag;
  std::optional<DeviceId> device;  // nullopt: the node (or, in session writes, the session)
  std::optional<FlagValue>
      value;  // nullopt: missing in the request, a violation where a value is needed
  std::string field;
  std::optional<uint64_t> if_mod_revision;
};

// What requested entries come to: legacy names expanded into the leaves they stand for, marked
// `via`.
struct Entry {
  FlagId flag;
  std::optional<DeviceId> device;
  FlagValue value;
  std::optional<FlagId> via;
};

// Who writes entries, as ExplainFlag shows it.
struct Writer {
  std::string source;  // "uid 1000 pid 4711 (trainer)"
  std::string reason;
};

// A lease's stack position: higher priority wins, then the later grant.
struct LeaseOwner {
  LeaseId lease;
  SessionId session;  // the overlay's session where the entries are private; its holder otherwise
  bool is_private = false;  // SESSION scope
  int32_t priority = 0;
  Writer writer;
};

// A lease entry that another lease covers, or covers no more.
struct ShadowChange {
  LeaseId lease;
  FlagId flag;
  std::optional<LeaseId> by;  // nullopt: uncovered
};

// One decided revision.
struct Change {
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<ValueChange> changes;  // node and device readings that moved
  std::map<SessionId, std::vector<ValueChange>> session_changes;  // private readings that moved
  std::vector<FlagId> kept;  // leaves below a written parent that kept their own value
  std::vector<ShadowChange> shadows;
  std::vector<std::string> warnings;
  std::string cause;
};

// Owned by the Node; every method needs the node's mutation lock but latest(), which is not called
// by others either. Nothing here knows leases' lives, sessions' lives, or gRPC.
class FlagStore {
 public:
  struct Options {
    std::string epoch;
    uint64_t first_revision = 1;
    NodeFacts facts;                      // what is built and found on this node
    std::vector<LayerEntry> environment;  // parsed by environment.h, with warnings
    std::vector<LayerEntry> file;         // parsed from the daemon's YAML
    const Clock* clock = nullptr;         // wall time of snapshots; nullptr: the system's
  };
  static absl::StatusOr<std::unique_ptr<FlagStore>> Create(Options options);
  ~FlagStore();

  // Checks names, access, availability, types, ranges, words, scopes and pairs of flags that
  // contradict each other, expands legacy names. Every violation at once (into `violations`),
  // nothing is changed. `session`: entries are private values. `writing` false: unset, values are
  // not needed.
  std::vector<Entry> Check(absl::Span<const RequestedEntry> requested,
                           std::optional<SessionId> session, bool writing,
                           std::vector<Violation>* violations) const;

  // Edits gather until Apply, which makes them one revision. Nothing is visible before.
  void SetBase(std::vector<Entry> entries, const Writer& writer);
  void UnsetBase(absl::Span<const Entry> entries);
  void SetBare(SessionId session, std::vector<Entry> entries, const Writer& writer);
  void UnsetBare(SessionId session, absl::Span<const Entry> entries);
  void PutLease(const LeaseOwner& owner,
                std::vector<Entry> entries);  // new, or replaces the lease's entries
  void DropLease(LeaseId lease);
  void DropSession(SessionId session);                // bare values and overlays
  void SetSemantics(SessionId session, bool compat);  // forgotten by DropSession
  void SetFacts(NodeFacts facts);                     // a device came, went, or said what it can do
  // Always takes a revision when `always` (grants and endings); else only when an entry changed.
  // nullopt: nothing to do.
  std::optional<Change> Apply(std::string cause, bool always);
  void Discard();  // forgets gathered edits

  // The newest decided snapshot.
  std::shared_ptr<const Snapshot> latest() const;
  // The lease of another session whose entry would cover one granted now at `priority`; nullopt:
  // none.
  std::optional<LeaseId> Covering(const Entry& entry, int32_t priority, SessionId session) const;

 private:
  class Impl;
  explicit FlagStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_FLAG_STORE_H_
