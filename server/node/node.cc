#include "server/node/node.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "server/node/commit/commands.h"
#include "server/node/node_impl.h"
#include "shared/log/log.h"

namespace backendd::node {
namespace {

constexpr size_t kHistory = 8192;
thread_local bool sending = false;  // this thread is in Workers::Send, under the lock

std::string NewEpoch() { return absl::BytesToHexString(View(RandomToken())).substr(0, 16); }

}  // namespace

absl::Status QuotaExceeded(const char* quota, int limit, absl::string_view what,
                           std::optional<absl::Duration> retry_after) {
  ErrorDetails details;
  details.reason = Reason::kQuotaExceeded;
  details.metadata = {
      {"quota", quota}, {"limit", absl::StrCat(limit)}, {"usage", absl::StrCat(limit)}};
  details.retry_after = retry_after;
  return Error(std::move(details), absl::StrCat("at most ", limit, " ", what));
}

std::string RandomToken() {
  std::string token(16, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    std::abort();  // cannot fail for 16 bytes once booted
  return token;
}

std::string CauseName(v1::EndCause cause) {
  return v1::EndCause_Name(cause).substr(sizeof("END_CAUSE_") - 1);
}

bool SameProcess(const Peer& a, const Peer& b) {
  if (&a == &b) return true;
  return a.pid != 0 && a.pid == b.pid && a.uid == b.uid && a.pidfd_inode == b.pidfd_inode;
}

std::string PeerText(const Peer& peer) {
  return absl::StrCat("uid ", peer.uid, " pid ", peer.pid, " (", peer.comm, ")");
}

v1::FlagChange ToProto(const ValueChange& change) {
  v1::FlagChange out;
  out.set_flag(Catalogue::Get().info(change.flag).name);
  if (change.device.has_value()) out.set_device(*change.device);
  if (change.before.has_value()) *out.mutable_old_value() = backendd::ToProto(*change.before);
  if (change.after.has_value()) *out.mutable_new_value() = backendd::ToProto(*change.after);
  return out;
}

void PutViolations(const std::vector<Violation>& violations,
                   google::protobuf::RepeatedPtrField<v1::FieldViolation>* out) {
  for (const Violation& violation : violations) {
    v1::FieldViolation* one = out->Add();
    one->set_field(ValidUtf8(violation.field));
    one->set_reason(Str(ReasonName(violation.reason)));
    one->set_description(ValidUtf8(violation.description));
  }
}

absl::StatusOr<Page> PageOf(int32_t size, const std::string& token) {
  Page page;
  if (size < 0) return Error(Reason::kArgumentInvalid, "page_size is negative; allowed: 0 to 1000");
  if (size > 0) page.size = std::min<size_t>(size, 1000);
  if (token.empty()) return page;
  const size_t dot = token.find('.');
  if (dot == std::string::npos ||
      !absl::SimpleAtoi(absl::string_view(token).substr(0, dot), &page.revision) ||
      !absl::SimpleAtoi(absl::string_view(token).substr(dot + 1), &page.from))
    return Error(Reason::kArgumentInvalid, "page_token is none that was handed out");
  return page;
}

std::string PageToken(uint64_t revision, uint64_t from) {
  return absl::StrCat(revision, ".", from);
}

absl::StatusOr<DeviceId> FindDevice(absl::string_view text, const NodeFacts& facts) {
  if (text == "cpu") return DeviceId("cpu");
  for (const NodeFacts::Cuda& cuda : facts.cuda_devices) {
    if (cuda.id == text) return cuda.id;
  }
  absl::string_view digits = text;
  absl::ConsumePrefix(&digits, "cuda:");
  const size_t count = facts.cuda_devices.size();
  if (!digits.empty() && digits.find_first_not_of("0123456789") == absl::string_view::npos) {
    size_t index = 0;
    if (absl::SimpleAtoi(digits, &index) && index < count) return facts.cuda_devices[index].id;
    return Error(Reason::kDeviceIndex,
                 absl::StrCat("device index ", digits, " is out of range; CUDA devices: ", count),
                 {{"index", Str(digits)}, {"count", absl::StrCat(count)}});
  }
  return Error(Reason::kDeviceUnknown, absl::StrCat("this node has no device '", text, "'"),
               {{"device", Str(text)}});
}

Turn::Turn(Node* node) : node_(node) { node_->mutex_.Lock(); }

Turn::~Turn() {
  node_->Settle();
  std::vector<std::function<void()>> after;
  after.swap(node_->after_);
  const absl::Duration next = node_->reaper_ ? node_->NextDeadline() : absl::InfiniteDuration();
  node_->mutex_.Unlock();
  if (next != absl::InfiniteDuration()) node_->reaper_->WakeAt(next);
  for (const auto& call : after) call();
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(Options options, Workers* workers) {
  auto node = std::unique_ptr<Node>(new Node(std::move(options), workers));
  FlagStore::Options store;
  store.epoch = node->epoch_;
  store.facts = node->options_.facts;
  store.environment = node->options_.environment;
  store.file = node->options_.file;
  store.clock = node->clock_;
  {
    MutexLock lock(&node->mutex_);
    ASSIGN_OR_RETURN(node->store_, FlagStore::Create(std::move(store)));
    MutexLock published(&node->published_mutex_);
    node->published_ = node->store_->latest();
  }
  Node* raw = node.get();
  ASSIGN_OR_RETURN(node->deaths_, DeathWatch::Create([raw](SessionId id) { raw->Died(id); }));
  if (node->options_.timer)
    node->reaper_ = std::make_unique<LeaseReaper>(
        node->clock_, [raw](absl::Duration stall) { return raw->Expire(stall); });
  return node;
}

Node::Node(Options options, Workers* workers)
    : options_(std::move(options)),
      clock_(options_.clock != nullptr ? options_.clock : &system_clock_),
      workers_(workers),
      epoch_(NewEpoch()),
      started_(clock_->Steady()),
      leases_(clock_),
      mutations_(options_.quotas.mutations_per_second, options_.quotas.mutation_burst) {}

Node::~Node() {
  reaper_.reset();
  deaths_.reset();
}

Caller Node::CallerOf(std::shared_ptr<const Peer> peer) const {
  if (peer == nullptr) peer = std::make_shared<const Peer>();  // no rule fits it
  const Role role = RoleOf(*peer, options_.roles);
  return {std::move(peer), role};
}

std::shared_ptr<const Snapshot> Node::published() const {
  MutexLock lock(&published_mutex_);
  return published_;
}

absl::StatusOr<SessionId> Node::Own(const Caller& caller, uint64_t session) const {
  if (session == 0) return Error(Reason::kIdInvalid, "session_id 0 is no id");
  {
    MutexLock lock(&published_mutex_);
    const auto found = identities_.find(SessionId(session));
    if (found != identities_.end() && SameProcess(*found->second, *caller.peer))
      return SessionId(session);
  }
  return Error(Reason::kSessionUnknown,
               absl::StrCat("the calling process has no session ", Prefix(SessionId(session))));
}

absl::StatusOr<std::optional<SessionId>> Node::OwnIf(const Caller& caller, bool has,
                                                     uint64_t session) const {
  if (!has) return std::optional<SessionId>();
  ASSIGN_OR_RETURN(const SessionId own, Own(caller, session));
  return std::optional<SessionId>(own);
}

absl::Status Node::Throttle(const Caller& caller) {
  const absl::Duration wait = mutations_.Take(caller.peer->uid, clock_->Steady());
  if (wait == absl::ZeroDuration()) return absl::OkStatus();
  return QuotaExceeded("mutations_per_second", options_.quotas.mutations_per_second,
                       "grants and shared writes per second", wait);
}

Node::Replays& Node::ReplaysOf(uid_t user) {
  Replays& replays = replays_[user];
  while (!replays.order.empty()) {
    const auto& [id, oldest] = replays.order.front();
    if (replays.order.size() <= kMostRemembered && oldest->at + kRemembered > clock_->Steady())
      break;
    replays.Forget(id, oldest);
    replays.order.pop_front();
  }
  return replays;
}

absl::Status Node::CheckRevision(bool has, uint64_t revision) const {
  const uint64_t now = store_->latest()->revision();
  if (!has || revision == now) return absl::OkStatus();
  return Error(Reason::kRevisionStale,
               absl::StrCat("the node is at revision ", now, ", not ", revision),
               {{"revision", absl::StrCat(now)}});
}

uint64_t Node::Commit(std::string cause, bool always, std::set<SessionId> touched,
                      control::v1::Command extra, std::function<void(const Change*)> then) {
  const std::shared_ptr<const Snapshot> before = store_->latest();
  Inflight inflight{store_->Apply(std::move(cause), always), std::move(then)};
  const std::shared_ptr<const Snapshot> now = store_->latest();
  const bool changed = inflight.change.has_value();
  for (control::v1::LeaseToken& lease : *extra.mutable_snapshot()->mutable_leases()) {
    lease.set_token(now->revision());
    leases_.SetToken(LeaseId(lease.lease_id()), now->revision());
  }
  inflight.sent = changed || extra.grants_size() > 0 || extra.ends_size() > 0;
  const bool send = inflight.sent;
  inflight_.push_back(std::move(inflight));
  if (!send) return now->revision();
  sending = true;
  workers_->Send(
      [&](const DeviceId& device) {
        control::v1::Command command = extra;
        if (!changed) {
          command.clear_snapshot();
          return command;
        }
        control::v1::Snapshot changes = ChangesFor(device, *before, *now, touched);
        changes.mutable_leases()->Swap(command.mutable_snapshot()->mutable_leases());
        changes.mutable_ended_leases()->Swap(command.mutable_snapshot()->mutable_ended_leases());
        command.mutable_snapshot()->Swap(&changes);
        return command;
      },
      [this] {
        {
          MutexLock lock(&acknowledged_mutex_);
          ++acknowledged_;
        }
        if (!sending) Turn turn(this);  // settles
      });
  sending = false;
  return now->revision();
}

void Node::Settle() {
  if (settling_) return;
  settling_ = true;
  while (!inflight_.empty()) {
    if (inflight_.front().sent) {
      MutexLock lock(&acknowledged_mutex_);
      if (acknowledged_ == 0) break;
      --acknowledged_;
    }
    Inflight done = std::move(inflight_.front());
    inflight_.pop_front();
    if (done.change.has_value()) Publish(*done.change);
    if (done.then) done.then(done.change.has_value() ? &*done.change : nullptr);
  }
  settling_ = false;
}

bool Node::Watcher::Wants(FlagId flag) const {
  const std::string& name = Catalogue::Get().info(flag).name;
  return prefixes.empty() ||
         std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return absl::StartsWith(name, prefix); });
}

void Node::Publish(const Change& change) {
  {
    MutexLock lock(&published_mutex_);
    published_ = change.snapshot;
  }
  const uint64_t revision = change.snapshot->revision();
  history_.push_back({revision, change.cause, change.changes});
  if (history_.size() > kHistory) history_.pop_front();
  for (auto it = watchers_.begin(); it != watchers_.end();) {
    Watcher& watcher = *it->second;
    v1::WatchFlagsResponse message;
    message.set_epoch(epoch_);
    message.set_revision(revision);
    message.mutable_batch()->set_cause(change.cause);
    const auto put = [&](const std::vector<ValueChange>& changes) {
      for (const ValueChange& one : changes) {
        if (watcher.Wants(one.flag)) *message.mutable_batch()->add_changes() = ToProto(one);
      }
    };
    put(change.changes);
    if (watcher.session.has_value()) {
      const auto own = change.session_changes.find(*watcher.session);
      if (own != change.session_changes.end()) put(own->second);
    }
    const bool empty = message.batch().changes_size() == 0 &&
                       !(change.changes.empty() && change.session_changes.empty());
    watcher.bookmark_at = clock_->Steady() + watcher.interval;
    if (empty || watcher.sink->Send(message)) {
      ++it;
      continue;
    }
    watcher.sink->End(Error(Reason::kWatchLagged, "the reader is too far behind"));
    it = watchers_.erase(it);
  }
  for (const ShadowChange& shadow : change.shadows) {
    const HeldLease* lease = leases_.Find(shadow.lease);
    if (lease == nullptr) continue;
    const auto session = sessions_.find(lease->session);
    if (session == sessions_.end() || session->second->sink == nullptr) continue;
    v1::OpenSessionResponse frame;
    v1::LeaseEvent* event = frame.mutable_lease_event();
    event->set_lease_id(shadow.lease.value());
    v1::ShadowedEntry* entry =
        shadow.by.has_value() ? event->mutable_shadowed() : event->mutable_unshadowed();
    entry->set_flag(Catalogue::Get().info(shadow.flag).name);
    if (shadow.by.has_value()) entry->set_by(HolderText(*shadow.by));
    session->second->sink->Send(frame);
  }
}

uint64_t Node::End(std::vector<Ending> sessions,
                   const std::vector<std::pair<LeaseId, v1::EndCause>>& leases,
                   std::function<void()> then) {
  control::v1::Command extra;
  std::set<SessionId> touched;
  std::vector<std::pair<LeaseId, SessionId>> gone;
  std::vector<SessionId> ended;
  std::string cause;
  const auto end_lease = [&](LeaseId id, v1::EndCause why) {
    mutex_.AssertHeld();
    const HeldLease* lease = leases_.Find(id);
    if (lease == nullptr || lease->state == LeaseState::kEnding) return;
    if (lease->state == LeaseState::kWaiting) {
      LeaveLine(id, absl::CancelledError("the session ended"));
      return;
    }
    LeaseRecord& record = records_.at(id);
    record.cause = why;
    store_->DropLease(id);
    leases_.BeginEnd(id);
    if (record.is_private) touched.insert(lease->session);
    extra.mutable_snapshot()->add_ended_leases(id.value());
    gone.push_back({id, lease->session});
  };
  for (const auto& [id, why] : leases) {  // a HoldLease call is over with its lease
    const HeldLease* lease = leases_.Find(id);
    if (lease != nullptr && sessions_.at(lease->session)->hold)
      sessions.push_back({lease->session, why});
  }
  for (const Ending& ending : sessions) {
    const auto found = sessions_.find(ending.session);
    if (found == sessions_.end()) continue;
    Session& session = *found->second;
    if (session.state == v1::SESSION_STATE_ENDING) continue;
    session.state = v1::SESSION_STATE_ENDING;
    cause = absl::StrCat("session ended: ", CauseName(ending.cause));
    LogInfo("session ended", {{"session", Prefix(ending.session)},
                              {"cause", CauseName(ending.cause)},
                              {"pid", session.caller.peer->pid},
                              {"leases", leases_.OfSession(ending.session).size()}});
    {
      MutexLock lock(&published_mutex_);
      identities_.erase(ending.session);
    }
    session_deadlines_.erase({session.deadline, ending.session});
    deaths_->Remove(ending.session);
    for (LeaseId id : leases_.OfSession(ending.session)) end_lease(id, ending.cause);
    store_->DropSession(ending.session);
    control::v1::SessionEnd* end = extra.add_ends();
    end->set_session_id(ending.session.value());
    end->set_cause(CauseName(ending.cause));
    if (session.sink != nullptr) session.sink->End(ending.cause, absl::OkStatus());
    session.sink = nullptr;
    ended.push_back(ending.session);
  }
  for (const auto& [id, why] : leases) {
    end_lease(id, why);
    if (cause.empty()) cause = absl::StrCat("lease ended: ", CauseName(why));
  }
  const bool always = !gone.empty();
  return Commit(std::move(cause), always, std::move(touched), std::move(extra),
                [this, gone, ended, then = std::move(then)](const Change*) {
                  mutex_.AssertHeld();
                  // Every worker admits nothing more of them: only now the next holder may come.
                  for (const auto& [id, session] : gone) {
                    const v1::EndCause why = records_.at(id).cause;
                    records_.erase(id);
                    leases_.Forget(id, session, why);
                    const auto holder = sessions_.find(session);
                    if (why == v1::END_CAUSE_RELEASED || holder == sessions_.end() ||
                        holder->second->sink == nullptr)
                      continue;
                    v1::OpenSessionResponse frame;
                    frame.mutable_lease_event()->set_lease_id(id.value());
                    frame.mutable_lease_event()->set_lost(why);
                    holder->second->sink->Send(frame);
                  }
                  for (SessionId id : ended) {
                    const auto found = sessions_.find(id);
                    if (--sessions_by_user_[found->second->caller.peer->uid] == 0)
                      sessions_by_user_.erase(found->second->caller.peer->uid);
                    Remember(*found->second);
                    sessions_.erase(found);
                  }
                  GrantWaiters();
                  if (then) then();
                });
}

void Node::Died(SessionId session) {
  Turn turn(this);
  End({{session, v1::END_CAUSE_PROCESS_EXIT}}, {}, nullptr);
}

void Node::EndAll(v1::EndCause cause) {
  Turn turn(this);
  std::vector<Ending> all;
  for (const auto& [id, session] : sessions_) all.push_back({id, cause});
  End(all, {}, nullptr);
}

void Node::Drain(absl::Duration time_left) {
  Turn turn(this);
  draining_ = true;
  v1::OpenSessionResponse frame;
  *frame.mutable_draining()->mutable_time_left() = backendd::ToProto(time_left);
  for (const auto& [id, session] : sessions_) {
    if (session->sink != nullptr) session->sink->Send(frame);
  }
}

absl::Duration Node::NextDeadline() const {
  absl::Duration next = leases_.NextDeadline();
  if (!session_deadlines_.empty()) next = std::min(next, session_deadlines_.begin()->first);
  for (const auto& [id, watcher] : watchers_) next = std::min(next, watcher->bookmark_at);
  return next;
}

absl::Duration Node::Expire(absl::Duration stall) {
  Turn turn(this);
  const absl::Duration now = clock_->Steady();
  if (stall > absl::ZeroDuration()) {
    LogWarning("the daemon did not run for a while; deadlines moved",
               {{"stall", absl::FormatDuration(stall)}});
    leases_.CreditStall(stall);
    std::set<std::pair<absl::Duration, SessionId>> moved;
    for (const auto& [deadline, id] : session_deadlines_) {
      Session& session = *sessions_.at(id);
      session.deadline = std::max(deadline + stall, now + session.ttl / 3);
      moved.insert({session.deadline, id});
    }
    session_deadlines_.swap(moved);
  }
  std::vector<Ending> endings;
  for (const auto& [deadline, id] : session_deadlines_) {
    if (deadline > now) break;
    const Session& session = *sessions_.at(id);
    endings.push_back({id, session.hold ? v1::END_CAUSE_DEADLINE
                           : session.state == v1::SESSION_STATE_SUSPENDED
                               ? v1::END_CAUSE_STREAM_BROKEN
                               : v1::END_CAUSE_TTL_EXPIRED});
  }
  std::vector<std::pair<LeaseId, v1::EndCause>> expired;
  for (LeaseId id : leases_.Due()) {
    const HeldLease& lease = *leases_.Find(id);
    if (lease.state == LeaseState::kWaiting) {
      const auto blocker = leases_.Blocker(lease.session, lease.keys, lease.mode, id);
      LeaveLine(id, blocker.has_value() ? Conflict(*blocker)
                                        : Error(Reason::kLeaseConflict, "the wait is over"));
    } else {
      expired.push_back({id, v1::END_CAUSE_TTL_EXPIRED});
    }
  }
  if (!endings.empty() || !expired.empty()) End(endings, expired, nullptr);
  for (const auto& [id, watcher] : watchers_) {
    if (watcher->bookmark_at > now) continue;
    watcher->bookmark_at = now + watcher->interval;
    v1::WatchFlagsResponse message;
    message.set_epoch(epoch_);
    message.set_revision(published()->revision());
    message.mutable_bookmark();
    watcher->sink->Send(message);
  }
  GrantWaiters();
  return NextDeadline();
}

void Node::OnWorkerReady(const v1::Device& device) {
  Turn turn(this);
  // What a worker is built with outlives it: it comes back the same, or says otherwise then.
  NodeFacts facts = store_->latest()->facts();
  if (device.device() == "cpu" && !device.isa().empty()) facts.cpu_capability = device.isa();
  facts.libraries = options_.facts.libraries;
  for (const v1::Device& other : workers_->Devices())
    facts.libraries.insert(other.libraries().begin(), other.libraries().end());
  facts.libraries.insert(device.libraries().begin(), device.libraries().end());
  if (facts != store_->latest()->facts()) {
    store_->SetFacts(std::move(facts));
    Commit(absl::StrCat("worker ready: ", device.device()), false, {}, {}, nullptr);
  }
  control::v1::Command complete;
  *complete.mutable_snapshot() = CompleteFor(device.device(), *store_->latest());
  for (LeaseId id : leases_.All()) {
    const HeldLease& lease = *leases_.Find(id);
    if (lease.state != LeaseState::kActive) continue;
    control::v1::LeaseToken* token = complete.mutable_snapshot()->add_leases();
    token->set_lease_id(id.value());
    token->set_session_id(lease.session.value());
    token->set_token(lease.token);
  }
  for (const auto& [id, session] : sessions_) {
    if (session->state != v1::SESSION_STATE_ENDING) *complete.add_grants() = GrantFor(*session);
  }
  workers_->Attach(device.device(), std::move(complete));
}

void Node::OnDeviceChanged(const v1::Device& device, uint64_t old_epoch) {
  Turn turn(this);
  v1::OpenSessionResponse frame;
  v1::DeviceEvent* event = frame.mutable_device_event();
  event->set_device(device.device());
  event->set_state(device.state());
  event->set_old_epoch(old_epoch);
  event->set_new_epoch(device.epoch());
  for (const auto& [id, session] : sessions_) {
    if (session->sink != nullptr && session->granted) session->sink->Send(frame);
  }
}

void Node::OnSessionFreed(const DeviceId& device, uint64_t session, uint64_t bytes) {
  LogInfo("session freed",
          {{"device", device}, {"session", Prefix(SessionId(session))}, {"bytes", bytes}});
}

}  // namespace backendd::node
