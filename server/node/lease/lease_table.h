// Who holds which keys, who waits for them, and until when.
#ifndef BACKENDD_SERVER_NODE_LEASE_LEASE_TABLE_H_
#define BACKENDD_SERVER_NODE_LEASE_LEASE_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "shared/clock.h"
#include "shared/ids.h"

namespace backendd::node {

// What a lease takes. Opaque: equal flags overlap on equal devices, and the node overlaps all.
struct LeaseKey {
  int flag = 0;
  std::string device;  // empty: the node
  friend auto operator<=>(const LeaseKey&, const LeaseKey&) = default;
};

enum class LeaseMode { kShared, kExclusive };
enum class LeaseState { kWaiting, kActive, kEnding };

struct HeldLease {
  LeaseId id;
  SessionId session;
  std::vector<LeaseKey> keys;  // none: its entries are its session's own and conflict with nobody
  LeaseMode mode = LeaseMode::kShared;
  LeaseState state = LeaseState::kActive;
  std::optional<absl::Duration> ttl;                   // nullopt: lives as long as its session
  absl::Duration since;                                // steady: asked (waiting), granted (active)
  absl::Duration deadline = absl::InfiniteDuration();  // steady: of the wait, or of the TTL
  uint64_t token = 0;                                  // the revision of its grant
  uint64_t order = 0;                                  // of arrival
};

// Pure state beside an injected clock; the owner locks. Knows no flags, no sessions, no gRPC.
// A lease's keys stay taken while it is ending: they are free only after Forget.
class LeaseTable {
 public:
  explicit LeaseTable(const Clock* clock) : clock_(clock) {}

  // The lease, held or waiting, that stands in the way; nullopt: could be granted now. A SHARED
  // request queues behind a waiting EXCLUSIVE. `self` is not looked at (an update).
  std::optional<LeaseId> Blocker(SessionId session, const std::vector<LeaseKey>& keys,
                                 LeaseMode mode, LeaseId self = LeaseId()) const;
  // Takes the keys; the caller has seen that nothing blocks. Its TTL runs from now.
  const HeldLease& Grant(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode,
                         std::optional<absl::Duration> ttl);
  // Stands in line until `wait` has passed.
  const HeldLease& Enqueue(SessionId session, std::vector<LeaseKey> keys, LeaseMode mode,
                           std::optional<absl::Duration> ttl, absl::Duration wait);
  // The first waiter in line that nothing blocks, now active; nullopt: none.
  std::optional<LeaseId> GrantNext();
  void SetToken(LeaseId id, uint64_t token);
  // New keys or mode of an active lease; the caller has seen that nothing blocks.
  void Replace(LeaseId id, std::vector<LeaseKey> keys, LeaseMode mode);
  void SetTtl(LeaseId id, absl::Duration ttl);
  // The clock starts anew; false: it has ended, or waits.
  bool Renew(LeaseId id);
  // No longer in force; the keys stay taken.
  void BeginEnd(LeaseId id);
  // Gone; the keys are free. `cause` is remembered for 10 minutes, 4,096 leases at most.
  void Forget(LeaseId id, SessionId session, int cause);

  const HeldLease* Find(LeaseId id) const;
  struct Ended {
    LeaseId id;
    SessionId session;
    int cause;
    absl::Duration at;
  };
  const Ended* FindEnded(LeaseId id) const;
  std::vector<Ended> EndedOf(SessionId session) const;
  std::vector<LeaseId> OfSession(SessionId session) const;  // in order of arrival
  std::vector<LeaseId> All() const;                         // in order of arrival
  int PositionOf(LeaseId waiter) const;  // 1: the first in line among overlapping ones
  // The longest line, of waiters that `counts` counts.
  int WaitersOn(const std::vector<LeaseKey>& keys, absl::FunctionRef<bool(LeaseId)> counts) const;
  size_t size() const { return leases_.size(); }

  // Leases and waiters whose deadline has passed, in order of deadline. Never early.
  std::vector<LeaseId> Due() const;
  absl::Duration NextDeadline() const;
  // The clock stood still: every deadline moves by `stall`, and to at least now + TTL/3.
  void CreditStall(absl::Duration stall);

 private:
  struct Uses {  // of one flag
    std::set<LeaseId> held, exclusive, waiting;
  };
  HeldLease& Insert(HeldLease lease);
  void Index(const HeldLease& lease);
  void Unindex(const HeldLease& lease);
  void SetDeadline(HeldLease& lease, absl::Duration deadline);
  // Among holders, and waiters that came before `before`.
  std::optional<LeaseId> BlockerBefore(const HeldLease& wanted, uint64_t before) const;
  void TrimEnded();

  const Clock* clock_;
  uint64_t arrivals_ = 0;
  absl::flat_hash_map<LeaseId, std::unique_ptr<HeldLease>> leases_;
  absl::flat_hash_map<int, Uses> uses_;
  absl::flat_hash_map<SessionId, std::set<std::pair<uint64_t, LeaseId>>> by_session_;
  std::set<std::pair<uint64_t, LeaseId>> line_;  // waiters in order of arrival
  std::set<std::pair<absl::Duration, LeaseId>> deadlines_;
  std::deque<LeaseId> ended_order_;
  absl::flat_hash_map<LeaseId, Ended> ended_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_LEASE_LEASE_TABLE_H_
