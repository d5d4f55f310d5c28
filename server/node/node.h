// The control plane of one node: flags, leases and sessions under one lock, one order.
#ifndef BACKENDD_SERVER_NODE_NODE_H_
#define BACKENDD_SERVER_NODE_NODE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backendd/v1/device_service.pb.h"
#include "backendd/v1/flag_service.pb.h"
#include "backendd/v1/lease_service.pb.h"
#include "backendd/v1/session_service.pb.h"
#include "server/node/commit/workers.h"
#include "server/node/flags/flag_store.h"
#include "server/node/lease/lease_reaper.h"
#include "server/node/lease/lease_table.h"
#include "server/node/session/death_watch.h"
#include "server/node/session/rate_limit.h"
#include "server/node/session/roles.h"
#include "shared/clock.h"
#include "shared/sync.h"

namespace backendd::node {

struct NodeQuotas {
  int sessions = 16384, sessions_per_user = 1024;
  int leases = 65536, leases_per_session = 256, entries_per_lease = 128;
  int waiters_per_key = 16;  // of one user
  int watches_per_session = 32;
  int mutations_per_second = 0, mutation_burst = 400;  // of one user; 0: unlimited
};

// Answers a call; runs once, without the lock.
template <class Response>
using Done = std::function<void(absl::StatusOr<Response>)>;

// The way to a client that is here for longer. Called under the node's lock: neither blocks nor
// calls back. Nothing is called after End.
class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(const v1::OpenSessionResponse& frame) = 0;
  virtual void End(v1::EndCause cause, const absl::Status& status) = 0;
};
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual bool Send(const v1::WatchFlagsResponse& message) = 0;  // false: it lags too far behind
  virtual void End(const absl::Status& status) = 0;
};

// Owned by the daemon; the services call it from any thread, the workers' supervisor, the death
// watch and the reaper from theirs. A mutation is decided under the lock, sent to the workers, and
// published, answered and told to watchers when they have acknowledged it, in the order of
// revisions. Reads look at the published snapshot and take no part in that order. Ends with Drain,
// then its destructor, which wants the workers and services to be still.
class Node final : public Workers::Observer {
 public:
  struct Options {
    std::string version, socket;
    NodeFacts facts;
    std::vector<LayerEntry> environment, file;
    RoleRules roles;
    NodeQuotas quotas;
    std::vector<std::string> notes;
    const Clock* clock = nullptr;  // nullptr: the system's
    bool timer = true;             // false: tests call Expire
  };
  static absl::StatusOr<std::unique_ptr<Node>> Create(Options options, Workers* workers);
  ~Node() override;

  Caller CallerOf(std::shared_ptr<const Peer> peer) const;

  absl::StatusOr<v1::GetFlagResponse> GetFlag(const Caller&, const v1::GetFlagRequest&);
  absl::StatusOr<v1::ListFlagsResponse> ListFlags(const Caller&, const v1::ListFlagsRequest&);
  absl::StatusOr<v1::DescribeFlagResponse> DescribeFlag(const Caller&,
                                                        const v1::DescribeFlagRequest&);
  absl::StatusOr<v1::ExplainFlagResponse> ExplainFlag(const Caller&, const v1::ExplainFlagRequest&);
  void SetFlags(const Caller&, const v1::SetFlagsRequest&, Done<v1::SetFlagsResponse>);
  void UnsetFlags(const Caller&, const v1::UnsetFlagsRequest&, Done<v1::UnsetFlagsResponse>);
  // 0: it has ended already. StopWatch forgets the sink.
  uint64_t WatchFlags(const Caller&, const v1::WatchFlagsRequest&, WatchSink*);
  void StopWatch(uint64_t watch);

  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const Caller&, const v1::ListDevicesRequest&);
  absl::StatusOr<v1::GetNodeResponse> GetNode(const Caller&, const v1::GetNodeRequest&);

  // A stream: the first frame opens or resumes, later ones renew. `sink` is told what follows, its
  // End is the last of it; StreamBroke says that the stream is gone without one.
  absl::StatusOr<SessionId> OpenSession(const Caller&, const v1::Hello&, SessionSink*);
  void Frame(SessionId, SessionSink*, const v1::OpenSessionRequest&);
  void StreamBroke(SessionId, SessionSink*, v1::EndCause cause);
  absl::StatusOr<v1::GetSessionResponse> GetSession(const Caller&, const v1::GetSessionRequest&);
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const Caller&,
                                                        const v1::ListSessionsRequest&);
  void KickSession(const Caller&, const v1::KickSessionRequest&, Done<v1::KickSessionResponse>);

  // The waiting lease, for CancelWait; 0: it does not wait.
  LeaseId AcquireLease(const Caller&, const v1::AcquireLeaseRequest&,
                       Done<v1::AcquireLeaseResponse>);
  void CancelWait(LeaseId lease);
  void RenewLease(const Caller&, const v1::RenewLeaseRequest&, Done<v1::RenewLeaseResponse>);
  void UpdateLease(const Caller&, const v1::UpdateLeaseRequest&, Done<v1::UpdateLeaseResponse>);
  void ReleaseLease(const Caller&, const v1::ReleaseLeaseRequest&, Done<v1::ReleaseLeaseResponse>);
  absl::StatusOr<v1::GetLeaseResponse> GetLease(const Caller&, const v1::GetLeaseRequest&);
  absl::StatusOr<v1::ListLeasesResponse> ListLeases(const Caller&, const v1::ListLeasesRequest&);
  // The call is a session of its own: `queued` is told its place in line, then `granted`.
  absl::StatusOr<SessionId> HoldLease(const Caller&, const v1::HoldLeaseRequest&, SessionSink*,
                                      std::function<void(int position)> queued,
                                      Done<v1::AcquireLeaseResponse> granted);

  // Notice to all sessions; new sessions and leases are refused from now on.
  void Drain(absl::Duration time_left);
  // All sessions end, in one revision.
  void EndAll(v1::EndCause cause);
  // Ends what is due and answers when to come back.
  absl::Duration Expire(absl::Duration stall);

  void OnWorkerReady(const v1::Device& device) override;
  void OnDeviceChanged(const v1::Device& device, uint64_t old_epoch) override;
  void OnSessionFreed(const DeviceId& device, uint64_t session, uint64_t bytes) override;

 private:
  friend class Turn;
  struct Session;
  struct LeaseRecord;
  struct Inflight;
  struct Watcher;
  struct Replay;
  struct Replays;
  struct Past {  // one revision, for those who resume a watch
    uint64_t revision;
    std::string cause;
    std::vector<ValueChange> changes;
  };
  struct Ending {
    SessionId session;
    v1::EndCause cause;
  };
  struct Former {  // an ended session, for who comes back too late
    std::string resume_token;
    uid_t uid;
    absl::Duration at;
  };

  Node(Options options, Workers* workers);
  std::shared_ptr<const Snapshot> published() const;

  // Who may be named by a call: the caller's own process's sessions. SESSION_UNKNOWN, ID_INVALID.
  absl::StatusOr<SessionId> Own(const Caller&, uint64_t session) const;
  absl::StatusOr<std::optional<SessionId>> OwnIf(const Caller&, bool has, uint64_t session) const;

  // The reading, of a live number too.
  absl::StatusOr<Reading> Read(const Snapshot&, FlagId, absl::Span<const std::string> arguments,
                               const std::optional<DeviceId>&, std::optional<SessionId>) const;
  // For ListFlags, whose pages are of one revision: keeps a snapshot; finds one, or REVISION_STALE.
  void KeepListed(std::shared_ptr<const Snapshot> snapshot);
  absl::StatusOr<std::shared_ptr<const Snapshot>> Listed(uint64_t revision) const;

  // QUOTA_EXCEEDED where the caller changes what others see too often.
  absl::Status Throttle(const Caller&) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRevision(bool has, uint64_t revision) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the gathered edits one revision, tells the workers, and runs `then` when it is in force.
  // The revision; the present one where nothing changed (`then` runs in its turn).
  uint64_t Commit(std::string cause, bool always, std::set<SessionId> touched,
                  control::v1::Command extra, std::function<void(const Change*)> then)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GrantWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void After(std::function<void()> call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    after_.push_back(std::move(call));
  }
  template <class Response>
  void Reply(const Done<Response>& done, Response response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    After([done, response = std::move(response)]() mutable { done(std::move(response)); });
  }

  // The one ending: private values and lease entries go in one revision, keys last.
  uint64_t End(std::vector<Ending> sessions,
               const std::vector<std::pair<LeaseId, v1::EndCause>>& leases,
               std::function<void()> then) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveLine(LeaseId lease, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Died(SessionId session);
  absl::StatusOr<SessionId> AddSession(const Caller&, const v1::Hello&, absl::Duration ttl,
                                       absl::Duration grace, SessionSink*)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `hello`: of a session that comes back.
  void Welcome(SessionId session, bool resumed, const v1::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remember(const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Check(const Caller&, const google::protobuf::RepeatedPtrField<v1::LeaseEntry>&,
                     SessionId session, const char* field, bool writing,
                     std::vector<Entry>* entries, bool* is_private,
                     std::vector<Violation>* violations) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LeaseId Acquire(const Caller&, const v1::AcquireLeaseRequest&, Done<v1::AcquireLeaseResponse>)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(LeaseId lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Conflict(LeaseId blocker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Lease Show(LeaseId lease, const Caller& caller) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string HolderText(LeaseId lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Session Show(const Session& session, const Caller& caller) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<LeaseId> OwnLease(const Caller&, uint64_t session, uint64_t lease) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  control::v1::Grant GrantFor(const Session& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration NextDeadline() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A repeat of `request` gets the first answer.
  template <class Req, class Resp>
  bool Once(const Caller&, const Req& request, Done<Resp>* done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The user's repeats, without those that are too old.
  Replays& ReplaysOf(uid_t user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const SystemClock system_clock_;
  const Clock* const clock_;
  Workers* const workers_;
  const std::string epoch_;
  const absl::Duration started_;

  mutable Mutex published_mutex_;  // of the pointer only; last in the lock order
  std::shared_ptr<const Snapshot> published_ ABSL_GUARDED_BY(published_mutex_);
  absl::flat_hash_map<SessionId, std::shared_ptr<const Peer>> identities_
      ABSL_GUARDED_BY(published_mutex_);
  std::map<uint64_t, std::shared_ptr<const Snapshot>> listed_ ABSL_GUARDED_BY(published_mutex_);

  mutable Mutex mutex_;
  std::unique_ptr<FlagStore> store_ ABSL_GUARDED_BY(mutex_);
  LeaseTable leases_ ABSL_GUARDED_BY(mutex_);
  std::map<LeaseId, LeaseRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::map<SessionId, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, int> sessions_by_user_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<absl::Duration, SessionId>> session_deadlines_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::unique_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Past> history_ ABSL_GUARDED_BY(mutex_);
  std::map<uid_t, Replays> replays_ ABSL_GUARDED_BY(mutex_);
  std::map<SessionId, Former> former_ ABSL_GUARDED_BY(mutex_);
  std::deque<SessionId> former_order_ ABSL_GUARDED_BY(mutex_);
  RateLimit mutations_ ABSL_GUARDED_BY(mutex_);
  std::deque<Inflight> inflight_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> after_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool settling_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex acknowledged_mutex_;
  size_t acknowledged_ ABSL_GUARDED_BY(acknowledged_mutex_) = 0;  // of inflight_, from the front

  std::unique_ptr<DeathWatch> deaths_;
  std::unique_ptr<LeaseReaper> reaper_;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_NODE_H_
