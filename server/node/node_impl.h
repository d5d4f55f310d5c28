// What the Node's sources share. Nobody else includes it.
#ifndef BACKENDD_SERVER_NODE_NODE_IMPL_H_
#define BACKENDD_SERVER_NODE_NODE_IMPL_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/node/node.h"
#include "shared/convert/duration.h"
#include "shared/convert/flag_value.h"
#include "shared/convert/request.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::node {

// A turn in the one order: holds the lock, settles what the workers have acknowledged, and runs
// what was left for after it.
class ABSL_SCOPED_LOCKABLE Turn {
 public:
  explicit Turn(Node* node) ABSL_EXCLUSIVE_LOCK_FUNCTION(node->mutex_);
  ~Turn() ABSL_UNLOCK_FUNCTION();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Node* node_;
};

struct Node::Session {
  SessionId id;
  std::string name;
  std::map<std::string, std::string> labels;
  Caller caller;
  absl::Duration ttl, grace;
  absl::Duration deadline = absl::InfiniteDuration();  // of the TTL, or of the grace
  std::string resume_token, grant_token;               // 16 bytes each
  SessionSink* sink = nullptr;                         // nullptr: suspended
  v1::SessionState state = v1::SESSION_STATE_OPEN;
  v1::DeathDetector detector = v1::DEATH_DETECTOR_STREAM_ONLY;
  absl::Time opened_at;
  absl::Duration opened;
  bool compat = false;
  bool hold = false;     // a HoldLease call
  bool granted = false;  // the workers know it
  std::deque<absl::Duration> moves;
};

struct Node::LeaseRecord {
  Caller caller;
  std::string owner, reason;
  int32_t priority = 0;
  bool is_private = false, allow_shadowed = false;
  std::vector<Entry> entries;
  absl::Time granted_at;
  Done<v1::AcquireLeaseResponse> done;  // until granted
  v1::EndCause cause = v1::END_CAUSE_UNSPECIFIED;
};

struct Node::Inflight {
  std::optional<Change> change;
  std::function<void(const Change*)> then;
  bool sent = false;
};

struct Node::Watcher {
  WatchSink* sink;
  std::vector<std::string> prefixes;
  std::optional<SessionId> session;
  std::shared_ptr<const Peer> peer;
  absl::Duration interval, bookmark_at;
  bool Wants(FlagId flag) const;
};

struct Node::Replay {
  std::string content;
  absl::Duration at;
  std::optional<absl::StatusOr<std::string>> answer;
  std::vector<std::function<void(const absl::StatusOr<std::string>&)>> waiting;
};

struct Node::Replays {
  std::map<std::string, std::shared_ptr<Replay>> by_id;
  std::deque<std::pair<std::string, std::shared_ptr<Replay>>> order;  // also of forgotten ones
  void Forget(const std::string& id, const std::shared_ptr<Replay>& replay) {
    const auto found = by_id.find(id);
    if (found != by_id.end() && found->second == replay) by_id.erase(found);
  }
};

// A uuid, `cpu`, or the index of a CUDA device (`0`, `cuda:0`). DEVICE_UNKNOWN, DEVICE_INDEX.
absl::StatusOr<DeviceId> FindDevice(absl::string_view text, const NodeFacts& facts);
// What is remembered of what is over: request ids of each user, ended sessions.
constexpr absl::Duration kRemembered = absl::Minutes(10);
constexpr size_t kMostRemembered = 4096;

// "at most LIMIT WHAT".
absl::Status QuotaExceeded(const char* quota, int limit, absl::string_view what,
                           std::optional<absl::Duration> retry_after = std::nullopt);
std::string RandomToken();  // 16 bytes
std::string CauseName(v1::EndCause cause);
bool SameProcess(const Peer& a, const Peer& b);
std::string PeerText(const Peer& peer);  // "uid 1000 pid 4711 (trainer)"
v1::FlagChange ToProto(const ValueChange& change);
void PutViolations(const std::vector<Violation>& violations,
                   google::protobuf::RepeatedPtrField<v1::FieldViolation>* out);
// Size and start of a page; ARGUMENT_INVALID for a token that is none of ours.
struct Page {
  size_t size = 100;
  uint64_t revision = 0, from = 0;
};
absl::StatusOr<Page> PageOf(int32_t size, const std::string& token);
std::string PageToken(uint64_t revision, uint64_t from);

template <class Req, class Resp>
bool Node::Once(const Caller& caller, const Req& request, Done<Resp>* done) {
  if (request.request_id().empty()) return true;
  Replays& replays = ReplaysOf(caller.peer->uid);
  const std::string& id = request.request_id();
  const std::string content = Req::descriptor()->full_name() + request.SerializeAsString();
  auto answer = [done = *done](const absl::StatusOr<std::string>& bytes) {
    if (!bytes.ok()) return done(bytes.status());
    Resp response;
    response.ParseFromString(*bytes);
    done(std::move(response));
  };
  if (const auto found = replays.by_id.find(id); found != replays.by_id.end()) {
    Replay& first = *found->second;
    if (first.content != content) {
      After([done = *done] {
        done(Error(Reason::kRequestIdReused, "request_id was used for another request"));
      });
    } else if (first.answer.has_value()) {
      After([answer, bytes = *first.answer] { answer(bytes); });
    } else {
      first.waiting.push_back(std::move(answer));
    }
    return false;
  }
  auto replay = std::make_shared<Replay>();
  replay->content = content;
  replay->at = clock_->Steady();
  replays.by_id[id] = replay;
  replays.order.push_back({id, replay});
  *done = [this, uid = caller.peer->uid, id, replay, answer](absl::StatusOr<Resp> response) {
    absl::StatusOr<std::string> bytes = std::string();
    if (response.ok()) {
      bytes = response->SerializeAsString();
    } else {
      bytes = response.status();
    }
    std::vector<std::function<void(const absl::StatusOr<std::string>&)>> waiting;
    {
      MutexLock lock(&mutex_);
      replay->answer = bytes;
      waiting.swap(replay->waiting);
      if (!bytes.ok()) replays_[uid].Forget(id, replay);  // nothing changed: the next may try
    }
    answer(bytes);
    for (const auto& other : waiting) other(bytes);
  };
  return true;
}

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_NODE_IMPL_H_
