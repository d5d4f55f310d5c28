// A session as a worker knows it: its grant, its buffers, its place in the queues.
#ifndef BACKENDD_SERVER_WORKER_SESSION_SESSION_H_
#define BACKENDD_SERVER_WORKER_SESSION_SESSION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backendd/control/v1/control.pb.h"
#include "backendd/v1/compute_service.pb.h"
#include "server/worker/buffer/buffer_table.h"
#include "server/worker/program/executor.h"
#include "server/worker/program/listing.h"
#include "shared/ids.h"
#include "shared/sync.h"

namespace backendd::worker {

class Program;

// Who calls, as this process reads it.
struct Caller {
  uint32_t uid = UINT32_MAX;
  int64_t pid = 0;           // 0: unknown
  uint64_t pidfd_inode = 0;  // 0: unknown
};

// What became of a numbered program; kept for repeats.
struct Answer {
  bool done = false;
  absl::Status status;
  v1::SubmitResponse response;
  std::vector<std::function<void(const Answer&)>> waiters;  // repeats that came before the end
};

struct Prepared {
  std::shared_ptr<const Listing> listing;
  std::vector<uint64_t> parameters;
};

// Shared by the table, the calls and the work in flight; any thread, under its lock. Ends when the
// daemon says so: refuses at once, and frees its buffers when what runs is done.
class Session {
 public:
  Session(SessionId id, Memory& memory);
  ~Session();

  const SessionId id;
  Lane lane;  // the executor's

  Mutex mutex;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  bool suspended ABSL_GUARDED_BY(mutex) = false;
  Quotas quotas ABSL_GUARDED_BY(mutex);
  BufferTable buffers ABSL_GUARDED_BY(mutex);
  uint64_t in_flight ABSL_GUARDED_BY(mutex) = 0;  // programs and copies, admitted or being so

  // Programs are admitted one after another: `admitting` says that one is, the rest waits here.
  bool admitting ABSL_GUARDED_BY(mutex) = false;
  std::deque<std::unique_ptr<Program>> waiting ABSL_GUARDED_BY(mutex);

  uint64_t last_seq ABSL_GUARDED_BY(mutex) = 0;
  std::deque<std::shared_ptr<Answer>> answers ABSL_GUARDED_BY(mutex);  // the last one is last_seq's

  absl::flat_hash_map<uint64_t, std::shared_ptr<const Prepared>> prepared ABSL_GUARDED_BY(mutex);

  // SESSION_UNKNOWN where it admits nothing.
  absl::Status CheckOpen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // QUOTA_EXCEEDED; else one more is in flight, to be ended by Leave.
  absl::Status Enter() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

// SESSION_UNKNOWN, the same for a session that never was, one that ended, a wrong token and a
// stranger.
absl::Status UnknownSession(uint64_t id);

// All sessions that the daemon granted. Owned by the worker; any thread.
class SessionTable {
 public:
  struct Hooks {
    std::function<void(std::function<void()>)> post;  // runs it soon, on a thread that may wait
    std::function<void(Session&)> drop;               // refuses what has not started
    std::function<void(SessionId, uint64_t)> freed;   // the last byte is back
  };
  SessionTable(Memory& memory, Hooks hooks) : memory_(memory), hooks_(std::move(hooks)) {}

  void Grant(const control::v1::Grant& grant);
  void End(SessionId id);

  absl::StatusOr<std::shared_ptr<Session>> Authenticate(SessionId id, absl::string_view token,
                                                        const Caller& caller) const;
  // By its token alone; nullptr: none.
  std::shared_ptr<Session> Find(absl::string_view token, const Caller& caller) const;
  bool Has(SessionId id) const;
  // Ends what Session::Enter began; frees the session if it was the last of an ended one.
  void Leave(const std::shared_ptr<Session>& session);
  std::vector<std::pair<SessionId, uint64_t>> Bytes() const;

 private:
  struct Granted {
    std::string token;
    Caller peer;
    std::shared_ptr<Session> session;
    bool Admits(absl::string_view other, const Caller& caller) const;
  };

  Memory& memory_;
  const Hooks hooks_;
  mutable Mutex mutex_;
  absl::flat_hash_map<SessionId, Granted> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_SESSION_SESSION_H_
