// Sessions: opened, resumed, renewed, suspended, ended.
#include <algorithm>

#include "server/node/node.h"
#include "server/node/node_impl.h"

namespace backendd::node {
namespace {

constexpr absl::Duration kDefaultTtl = absl::Seconds(10);
constexpr size_t kMostMoves = 3;
constexpr absl::Duration kMovesWithin = absl::Seconds(10);

v1::DeathDetector DetectorOf(const Peer& peer) {
  switch (peer.pidfd.source) {
    case PidfdSource::kPeer:
      return v1::DEATH_DETECTOR_PEER_PIDFD;
    case PidfdSource::kOpened:
      return v1::DEATH_DETECTOR_PIDFD_OPEN;
    case PidfdSource::kNone:
      break;
  }
  return v1::DEATH_DETECTOR_STREAM_ONLY;
}

}  // namespace

control::v1::Grant Node::GrantFor(const Session& session) const {
  control::v1::Grant grant;
  const Peer& peer = *session.caller.peer;
  grant.set_session_id(session.id.value());
  grant.set_token(session.grant_token);
  grant.set_uid(peer.uid);
  grant.set_pid(peer.pid);
  grant.set_pidfd_inode(peer.pidfd_inode);
  grant.set_suspended(session.state == v1::SESSION_STATE_SUSPENDED);
  return grant;
}

absl::StatusOr<SessionId> Node::AddSession(const Caller& caller, const v1::Hello& hello,
                                           absl::Duration ttl, absl::Duration grace,
                                           SessionSink* sink) {
  if (draining_) return Error(Reason::kDraining, "the daemon drains; no new sessions");
  int& of_user = sessions_by_user_[caller.peer->uid];
  const bool own = of_user >= options_.quotas.sessions_per_user;
  if (own || static_cast<int>(sessions_.size()) >= options_.quotas.sessions) {
    const int limit = own ? options_.quotas.sessions_per_user : options_.quotas.sessions;
    return QuotaExceeded(own ? "sessions_per_user" : "sessions", limit, "sessions");
  }
  ++of_user;
  auto session = std::make_unique<Session>();
  do {
    session->id = RandomId<SessionId>();
  } while (sessions_.count(session->id) > 0);
  session->name = hello.name();
  session->labels = {hello.labels().begin(), hello.labels().end()};
  session->caller = caller;
  session->ttl = ttl;
  session->grace = grace;
  session->resume_token = RandomToken();
  session->grant_token = RandomToken();
  session->sink = sink;
  session->opened = clock_->Steady();
  session->opened_at = clock_->Wall();
  session->compat = hello.semantics() == v1::SEMANTICS_COMPAT;
  session->detector = DetectorOf(*caller.peer);
  if (ttl != absl::InfiniteDuration()) {
    session->deadline = session->opened + ttl;
    session_deadlines_.insert({session->deadline, session->id});
  }
  const SessionId id = session->id;
  if (session->compat) store_->SetSemantics(id, true);
  {
    MutexLock lock(&published_mutex_);
    identities_[id] = caller.peer;
  }
  sessions_[id] = std::move(session);
  deaths_->Add(id, caller.peer);
  return id;
}

absl::StatusOr<SessionId> Node::OpenSession(const Caller& caller, const v1::Hello& hello,
                                            SessionSink* sink) {
  RETURN_IF_ERROR(Admit(caller, Act::kSession));
  RETURN_IF_ERROR(CheckRequest(hello));
  std::vector<Violation> violations;
  absl::Duration ttl = kDefaultTtl, grace = absl::ZeroDuration();
  if (hello.has_ttl())
    ttl = CheckedDuration(hello.ttl(), "hello.ttl", absl::Milliseconds(200), absl::Hours(24),
                          &violations);
  if (hello.has_resume_grace())
    grace = CheckedDuration(hello.resume_grace(), "hello.resume_grace", absl::ZeroDuration(),
                            absl::Seconds(30), &violations);
  RETURN_IF_ERROR(ErrorFrom(std::move(violations)));
  if (hello.has_session_id() && hello.session_id() == 0)
    return Error(Reason::kIdInvalid, "session_id 0 is no id");
  Turn turn(this);
  const SessionId returning(hello.session_id());
  const auto found = sessions_.find(returning);
  if (found == sessions_.end() || found->second->state == v1::SESSION_STATE_ENDING ||
      found->second->hold || found->second->resume_token != hello.resume_token() ||
      !SameProcess(*found->second->caller.peer, *caller.peer)) {
    ASSIGN_OR_RETURN(const SessionId id, AddSession(caller, hello, ttl, grace, sink));
    Welcome(id, false, hello);
    return id;
  }
  Session& session = *found->second;
  const absl::Duration now = clock_->Steady();
  while (!session.moves.empty() && session.moves.front() + kMovesWithin < now)
    session.moves.pop_front();
  if (session.sink != nullptr) {
    if (session.moves.size() >= kMostMoves)
      return Error(Reason::kSessionMoved, "the session moved three times within 10 s");
    session.moves.push_back(now);
    session.sink->End(v1::END_CAUSE_UNSPECIFIED,
                      Error(Reason::kSessionMoved, "another stream resumed this session"));
  }
  session.sink = sink;
  session.state = v1::SESSION_STATE_OPEN;
  session.ttl = ttl;
  session.grace = grace;
  session.resume_token = RandomToken();
  session_deadlines_.erase({session.deadline, session.id});
  session.deadline = now + ttl;
  session_deadlines_.insert({session.deadline, session.id});
  {
    MutexLock lock(&published_mutex_);
    identities_[session.id] = session.caller.peer;
  }
  Welcome(returning, true, hello);
  return returning;
}

// Once the workers know the grant.
void Node::Welcome(SessionId id, bool resumed, const v1::Hello& hello) {
  control::v1::Command extra;
  *extra.add_grants() = GrantFor(*sessions_.at(id));
  Commit("session opened", false, {}, std::move(extra), [this, id, resumed, hello](const Change*) {
    mutex_.AssertHeld();
    const auto found = sessions_.find(id);
    if (found == sessions_.end() || found->second->sink == nullptr) return;
    Session& session = *found->second;
    session.granted = true;
    if (session.hold) return;
    v1::OpenSessionResponse frame;
    v1::Welcome* welcome = frame.mutable_welcome();
    welcome->set_session_id(id.value());
    welcome->set_resume_token(session.resume_token);
    welcome->set_epoch(epoch_);
    *welcome->mutable_ttl() = backendd::ToProto(session.ttl);
    welcome->set_continuity(resumed ? v1::SESSION_CONTINUITY_RESUMED : v1::SESSION_CONTINUITY_NEW);
    welcome->set_detector(session.detector);
    welcome->set_revision(published()->revision());
    for (const v1::Device& device : workers_->Devices()) {
      v1::DeviceGrant* grant = welcome->add_devices();
      grant->set_device(device.device());
      grant->set_socket(device.socket());
      grant->set_fd_socket(device.fd_socket());
      grant->set_token(session.grant_token);
      grant->set_device_epoch(device.epoch());
      grant->set_state(device.state());
    }
    const auto former = former_.find(SessionId(hello.session_id()));
    if (!resumed && former != former_.end() &&
        former->second.resume_token == hello.resume_token() &&
        former->second.uid == session.caller.peer->uid) {
      for (const LeaseTable::Ended& ended : leases_.EndedOf(former->first)) {
        v1::LostLease* one = welcome->add_lost();
        one->set_lease_id(ended.id.value());
        one->set_cause(static_cast<v1::EndCause>(ended.cause));
      }
    }
    session.sink->Send(frame);
  });
}

// Only who has its token is told what the session lost.
void Node::Remember(const Session& session) {
  if (session.hold) return;
  const absl::Duration now = clock_->Steady();
  former_[session.id] = {session.resume_token, session.caller.peer->uid, now};
  former_order_.push_back(session.id);
  while (former_order_.size() > kMostRemembered ||
         former_.at(former_order_.front()).at + kRemembered < now) {
    former_.erase(former_order_.front());
    former_order_.pop_front();
  }
}

void Node::Frame(SessionId id, SessionSink* sink, const v1::OpenSessionRequest& frame) {
  Turn turn(this);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->sink != sink) return;
  Session& session = *found->second;
  session_deadlines_.erase({session.deadline, id});
  session.deadline = clock_->Steady() + session.ttl;
  session_deadlines_.insert({session.deadline, id});
  if (frame.has_goodbye()) {
    End({{id, v1::END_CAUSE_GOODBYE}}, {}, nullptr);
  } else if (frame.has_heartbeat()) {
    v1::OpenSessionResponse answer;
    answer.mutable_heartbeat_ack()->set_sequence(frame.heartbeat().sequence());
    sink->Send(answer);
  } else {
    sink->End(v1::END_CAUSE_STREAM_BROKEN,
              Error(Reason::kFrameInvalid, frame.has_hello() ? "a second hello on one stream"
                                                             : "a frame that says nothing"));
    session.sink = nullptr;
    End({{id, v1::END_CAUSE_STREAM_BROKEN}}, {}, nullptr);
  }
}

void Node::StreamBroke(SessionId id, SessionSink* sink, v1::EndCause cause) {
  Turn turn(this);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->sink != sink) return;  // moved, or ended
  Session& session = *found->second;
  session.sink = nullptr;
  // The stream of a dead process breaks too, perhaps before its pidfd is heard: it has no grace.
  const int pidfd = session.caller.peer->pidfd.fd.get();
  const bool exited = pidfd >= 0 && HasExited(pidfd);
  if (exited) cause = v1::END_CAUSE_PROCESS_EXIT;
  if (exited || session.grace == absl::ZeroDuration() ||
      session.state == v1::SESSION_STATE_ENDING) {
    End({{id, cause}}, {}, nullptr);
    return;
  }
  session.state = v1::SESSION_STATE_SUSPENDED;
  session_deadlines_.erase({session.deadline, id});
  session.deadline = clock_->Steady() + session.grace;
  session_deadlines_.insert({session.deadline, id});
  {
    MutexLock lock(&published_mutex_);
    identities_.erase(id);  // calls are refused until it is back
  }
  control::v1::Command extra;
  *extra.add_grants() = GrantFor(session);
  Commit("session suspended", false, {}, std::move(extra), nullptr);
}

v1::Session Node::Show(const Session& session, const Caller& caller) const {
  const Peer& peer = *session.caller.peer;
  const bool own = SameProcess(peer, *caller.peer);
  v1::Session out;
  if (own || caller.role != Role::kWorker) out.set_session_id(session.id.value());
  out.set_name(ValidUtf8(session.name));
  out.mutable_labels()->insert(session.labels.begin(), session.labels.end());
  out.set_pid(peer.pid);
  out.set_uid(peer.uid);
  out.set_comm(peer.comm);
  const absl::Duration now = clock_->Steady();
  if (session.ttl != absl::InfiniteDuration()) *out.mutable_ttl() = backendd::ToProto(session.ttl);
  if (session.deadline != absl::InfiniteDuration())
    *out.mutable_ttl_left() =
        backendd::ToProto(std::max(session.deadline - now, absl::ZeroDuration()));
  *out.mutable_opened_at() = backendd::ToProto(session.opened_at);
  *out.mutable_age() = backendd::ToProto(now - session.opened);
  out.set_detector(session.detector);
  out.set_state(session.state);
  out.set_leases(static_cast<int32_t>(leases_.OfSession(session.id).size()));
  out.set_semantics(session.compat ? v1::SEMANTICS_COMPAT : v1::SEMANTICS_STRICT);
  for (const auto& [device, bytes] : workers_->SessionBytes(session.id.value()))
    (*out.mutable_device_bytes())[device] = bytes;
  return out;
}

absl::StatusOr<v1::GetSessionResponse> Node::GetSession(const Caller& caller,
                                                        const v1::GetSessionRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  if (request.session_id() == 0) return Error(Reason::kIdInvalid, "session_id 0 is no id");
  Turn turn(this);
  const auto found = sessions_.find(SessionId(request.session_id()));
  if (found == sessions_.end() ||
      (caller.role == Role::kWorker && !SameProcess(*found->second->caller.peer, *caller.peer)))
    return Error(Reason::kSessionUnknown,
                 absl::StrCat("there is no session ", Prefix(SessionId(request.session_id()))));
  v1::GetSessionResponse response;
  *response.mutable_session() = Show(*found->second, caller);
  return response;
}

absl::StatusOr<v1::ListSessionsResponse> Node::ListSessions(
    const Caller& caller, const v1::ListSessionsRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const Page page, PageOf(request.page_size(), request.page_token()));
  Turn turn(this);
  std::vector<const Session*> ordered;
  for (const auto& [id, session] : sessions_) ordered.push_back(session.get());
  std::sort(ordered.begin(), ordered.end(), [](const Session* a, const Session* b) {
    return std::make_pair(a->opened, a->id) < std::make_pair(b->opened, b->id);
  });
  v1::ListSessionsResponse response;
  for (const Session* session : ordered) {
    const uint64_t opened = static_cast<uint64_t>(absl::ToInt64Nanoseconds(session->opened));
    if (opened < page.from) continue;
    if (static_cast<size_t>(response.sessions_size()) == page.size) {
      response.set_next_page_token(PageToken(0, opened));
      break;
    }
    *response.add_sessions() = Show(*session, caller);
  }
  return response;
}

void Node::KickSession(const Caller& caller, const v1::KickSessionRequest& request,
                       Done<v1::KickSessionResponse> done) {
  Turn turn(this);
  absl::Status status = Admit(caller, Act::kForeign);
  const SessionId id(request.session_id());
  if (status.ok() && !id) status = Error(Reason::kIdInvalid, "session_id 0 is no id");
  if (status.ok() && sessions_.count(id) == 0)
    status = Error(Reason::kSessionUnknown, absl::StrCat("there is no session ", Prefix(id)));
  if (!status.ok()) return After([done, status] { done(status); });
  auto response = std::make_shared<v1::KickSessionResponse>();
  response->set_revision(End({{id, v1::END_CAUSE_KICKED}}, {}, [this, done, response] {
    mutex_.AssertHeld();
    After([done, response] { done(*response); });
  }));
}

absl::StatusOr<SessionId> Node::HoldLease(const Caller& caller, const v1::HoldLeaseRequest& request,
                                          SessionSink* sink, std::function<void(int)> queued,
                                          Done<v1::AcquireLeaseResponse> granted) {
  RETURN_IF_ERROR(Admit(caller, Act::kSharedLease));
  RETURN_IF_ERROR(CheckRequest(request));
  std::vector<Violation> violations;
  absl::Duration most = absl::InfiniteDuration();
  if (request.has_max_hold())
    most = CheckedDuration(request.max_hold(), "max_hold", absl::Milliseconds(200),
                           absl::Hours(24 * 365), &violations);
  for (int i = 0; i < request.entries_size(); ++i) {
    if (request.entries(i).scope().kind() == v1::SCOPE_KIND_SESSION)
      violations.push_back({absl::StrCat("entries[", i, "].scope"), Reason::kScopeInvalid,
                            "a held lease has no session whose private values it could be"});
  }
  RETURN_IF_ERROR(ErrorFrom(std::move(violations)));
  v1::AcquireLeaseRequest acquire;
  *acquire.mutable_entries() = request.entries();
  acquire.set_mode(request.mode());
  acquire.set_priority(request.priority());
  acquire.set_owner(request.owner());
  acquire.set_reason(request.reason());
  if (request.has_wait()) *acquire.mutable_wait() = request.wait();
  acquire.set_allow_shadowed(request.allow_shadowed());
  Turn turn(this);
  v1::Hello hello;
  hello.set_name("hold");
  ASSIGN_OR_RETURN(const SessionId id, AddSession(caller, hello, most, absl::ZeroDuration(), sink));
  sessions_.at(id)->hold = true;
  Welcome(id, false, hello);
  acquire.set_session_id(id.value());
  const LeaseId waiting = Acquire(caller, acquire, std::move(granted));
  if (waiting) After([queued, position = leases_.PositionOf(waiting)] { queued(position); });
  return id;
}

}  // namespace backendd::node
