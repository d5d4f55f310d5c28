// What writers ask for between two revisions: gathered here, put into the next snapshot at once.
#ifndef BACKENDD_SERVER_NODE_FLAGS_EDITS_H_
#define BACKENDD_SERVER_NODE_FLAGS_EDITS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/node/flags/flag_store.h"
#include "server/node/flags/resolver.h"
#include "server/node/flags/snapshot_impl.h"

namespace backendd::node {

// Part of a FlagStore, with its rules of who may call. `latest` is the store's newest snapshot, on
// which edits build.
class Edits {
 public:
  explicit Edits(const std::shared_ptr<const SnapshotImpl>& latest) : latest_(latest) {}

  // Entries of the environment and the file, which are set once.
  void Put(std::vector<LayerEntry> lines);
  // Base values; with a session, its bare ones.
  void Set(std::optional<SessionId> session, std::vector<Entry> entries, const Writer& writer);
  void Unset(std::optional<SessionId> session, absl::Span<const Entry> entries);
  void PutLease(const LeaseOwner& owner, std::vector<Entry> entries);
  void DropLease(LeaseId lease);
  void DropSession(SessionId session);
  void SetSemantics(SessionId session, bool compat);
  void SetFacts(NodeFacts facts);

  bool changed() const { return changed_; }
  // Puts all into `next`, whose readings are then to be resolved anew: returns the flags that may
  // read otherwise.
  std::set<FlagId> PutInto(SnapshotImpl* next);
  // What PutInto put, until Done: flags with other shared entries, sessions with other private
  // ones, entries of the fp32 tree that a request wrote (session 0: shared).
  const std::map<FlagId, Entries>& shared() const { return shared_edits_; }
  bool Touched(SessionId session) const { return session_edits_.count(session) > 0; }
  std::set<SessionId> Sessions() const;
  const std::set<std::pair<FlagId, SessionId>>& written_in_tree() const { return written_in_tree_; }
  // The snapshot with the edits is the latest now.
  void Done();
  void Discard();

 private:
  // What a lease has in the lists, so that dropping it looks at its own flags only.
  struct LeaseRecord {
    LeaseId lease;
    std::optional<SessionId> session;  // of private entries
    uint64_t order = 0;
    std::set<FlagId> flags;
  };

  uint64_t NextRevision() const { return latest_->revision() + 1; }
  LayerEntry MakeLayerEntry(Entry entry, Layer layer, const Writer& writer) const;
  const SessionState* StateOf(SessionId session) const;
  const LeaseRecord* RecordOf(LeaseId lease) const;
  SessionState& EditSession(SessionId session);
  Entries& Edit(std::optional<SessionId> session, FlagId flag);
  void Replace(std::optional<SessionId> session, std::shared_ptr<const OwnedEntry> owned);
  void DropOrphanedKeeper(std::optional<SessionId> session, FlagId keeper, Layer layer,
                          absl::Span<const Entry> unset);
  Entries TakeLease(const LeaseRecord& record);
  void Sweep();
  void NoteParents(absl::Span<const Entry> entries, std::optional<SessionId> session);

  const std::shared_ptr<const SnapshotImpl>& latest_;
  std::map<LeaseId, LeaseRecord> leases_;
  uint64_t orders_ = 0;

  // Gathered.
  std::map<FlagId, Entries> shared_edits_;
  std::map<SessionId, std::optional<SessionState>> session_edits_;  // nullopt: dropped
  std::map<LeaseId, std::optional<LeaseRecord>> lease_edits_;       // nullopt: dropped
  std::set<std::pair<std::optional<SessionId>, FlagId>> sweeps_;    // where dropped leases were
  std::optional<NodeFacts> facts_;
  std::set<std::pair<FlagId, SessionId>> written_in_tree_;
  bool changed_ = false;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_EDITS_H_
