// The snapshot that FlagStore makes: cells are shared with the revision before, but for those that
// a change touched.
#ifndef BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_IMPL_H_
#define BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_IMPL_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/node/flags/resolver.h"
#include "server/node/flags/snapshot.h"

namespace backendd::node {

// One flag: its shared entries and what they come to.
struct Cell {
  std::shared_ptr<const Entries> entries;
  Reading node;
  std::map<DeviceId, Reading> devices;  // only where something but `since` differs from the node's
};

// One session: its private entries.
struct SessionState {
  SessionEntries entries;  // no empty lists
  bool compat = false;
};

// The session's readings are resolved when asked for: they follow every layer below.
class SnapshotImpl final : public Snapshot, public SharedEntries {
 public:
  uint64_t revision() const override { return revision_; }
  const std::string& epoch() const override { return epoch_; }
  absl::Time time() const override { return time_; }
  const NodeFacts& facts() const override { return *facts_; }
  const std::vector<DeviceId>& devices() const override { return *devices_; }
  const Reading& Read(FlagId flag, const std::optional<DeviceId>& device) const override;
  absl::StatusOr<Reading> ReadFor(FlagId flag, const std::optional<DeviceId>& device,
                                  SessionId session) const override;
  std::vector<FlagId> PrivateFlags(SessionId session,
                                   const std::optional<DeviceId>& device) const override;
  std::vector<SessionId> SessionsWithPrivateValues() const override;
  std::vector<Explanation> Explain(FlagId flag, const std::optional<DeviceId>& device,
                                   std::optional<SessionId> session) const override;

  const Entries& EntriesOf(FlagId flag) const override { return *cells_[flag]->entries; }
  const SessionState* StateOf(SessionId session) const;  // nullptr: nothing of its own
  // The session's reading, whatever its semantics.
  Reading ReadPrivate(FlagId flag, const std::optional<DeviceId>& device,
                      const SessionState* session) const;

 private:
  // A snapshot is filled in by its makers, and left alone once published.
  friend class FlagStore;
  friend class Edits;
  void SetFacts(NodeFacts facts) {
    devices_ = std::make_shared<const std::vector<DeviceId>>(DevicesOf(facts));
    facts_ = std::make_shared<const NodeFacts>(std::move(facts));
  }
  View ViewOf(const std::optional<DeviceId>& device, const SessionState* session) const {
    return {*this, session == nullptr ? nullptr : &session->entries, device, *facts_};
  }

  uint64_t revision_ = 0;
  std::string epoch_;
  absl::Time time_;
  std::shared_ptr<const NodeFacts> facts_;
  std::shared_ptr<const std::vector<DeviceId>> devices_;
  std::vector<std::shared_ptr<const Cell>> cells_;                     // by FlagId
  std::map<SessionId, std::shared_ptr<const SessionState>> sessions_;  // those with a state
};

// Whether a worker or a reader would see a difference; `since` is none.
bool SameReading(const Reading& a, const Reading& b);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_FLAGS_SNAPSHOT_IMPL_H_
