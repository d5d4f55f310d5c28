// Leases: asked for, waited for, granted, renewed, changed, released.
#include <algorithm>

#include "server/node/node.h"
#include "server/node/node_impl.h"

namespace backendd::node {
namespace {

constexpr absl::Duration kLeastTtl = absl::Milliseconds(200), kMostTtl = absl::Hours(24);
constexpr absl::Duration kMostWait = absl::Hours(1);

std::vector<LeaseKey> KeysOf(const std::vector<Entry>& entries, bool is_private) {
  std::vector<LeaseKey> keys;
  if (is_private) return keys;
  for (const Entry& entry : entries) keys.push_back({entry.flag, entry.device.value_or("")});
  return keys;
}

LeaseMode ModeOf(v1::LeaseMode mode) {
  return mode == v1::LEASE_MODE_EXCLUSIVE ? LeaseMode::kExclusive : LeaseMode::kShared;
}

control::v1::Command TokenOf(const HeldLease& lease) {
  control::v1::Command command;
  control::v1::LeaseToken* token = command.mutable_snapshot()->add_leases();
  token->set_lease_id(lease.id.value());
  token->set_session_id(lease.session.value());
  return command;
}

// Roles that may know that a foreign lease exists, though not end it.
bool MaySee(Role role) {
  return role == Role::kObserver || role == Role::kOperator || role == Role::kScheduler ||
         role == Role::kAdmin;
}

}  // namespace

std::string Node::HolderText(LeaseId id) const {
  const auto record = records_.find(id);
  if (record == records_.end()) return Prefix(id);
  return absl::StrCat(Prefix(id), " of ", PeerText(*record->second.caller.peer));
}

absl::Status Node::Conflict(LeaseId blocker) const {
  const HeldLease& lease = *leases_.Find(blocker);
  const LeaseRecord& record = records_.at(blocker);
  const Peer& peer = *record.caller.peer;
  ErrorDetails details;
  details.reason = Reason::kLeaseConflict;
  const absl::Duration now = clock_->Steady();
  details.metadata = {{"lease", Prefix(blocker)},
                      {"holder", peer.comm},
                      {"pid", absl::StrCat(peer.pid)},
                      {"uid", absl::StrCat(peer.uid)},
                      {"reason", record.reason},
                      {"age", absl::FormatDuration(now - lease.since)},
                      {"mode", lease.mode == LeaseMode::kExclusive ? "EXCLUSIVE" : "SHARED"},
                      {"state", lease.state == LeaseState::kWaiting  ? "WAITING"
                                : lease.state == LeaseState::kActive ? "ACTIVE"
                                                                     : "ENDING"}};
  if (lease.ttl.has_value() && lease.state == LeaseState::kActive)
    details.metadata["ttl_left"] = absl::FormatDuration(lease.deadline - now);
  return Error(std::move(details),
               absl::StrCat("lease ", HolderText(blocker), " stands in the way"));
}

v1::Lease Node::Show(LeaseId id, const Caller& caller) const {
  const HeldLease& lease = *leases_.Find(id);
  const LeaseRecord& record = records_.at(id);
  const Peer& peer = *record.caller.peer;
  const bool own = SameProcess(peer, *caller.peer);
  const absl::Duration now = clock_->Steady();
  v1::Lease out;
  out.set_prefix(Prefix(id));
  out.set_holder(peer.comm);
  out.set_pid(peer.pid);
  out.set_uid(peer.uid);
  out.set_reason(record.reason);
  out.set_mode(lease.mode == LeaseMode::kExclusive ? v1::LEASE_MODE_EXCLUSIVE
                                                   : v1::LEASE_MODE_SHARED);
  out.set_state(lease.state == LeaseState::kWaiting  ? v1::LEASE_STATE_WAITING
                : lease.state == LeaseState::kActive ? v1::LEASE_STATE_ACTIVE
                                                     : v1::LEASE_STATE_ENDING);
  *out.mutable_age() = backendd::ToProto(now - lease.since);
  if (lease.ttl.has_value()) {
    *out.mutable_ttl() = backendd::ToProto(*lease.ttl);
    if (lease.state == LeaseState::kActive)
      *out.mutable_ttl_left() =
          backendd::ToProto(std::max(lease.deadline - now, absl::ZeroDuration()));
  }
  if (!own && !MaySee(caller.role)) return out;
  out.set_lease_id(id.value());
  out.set_session_id(lease.session.value());
  out.set_owner(record.owner);
  out.set_priority(record.priority);
  out.set_revision(lease.token);
  if (own) out.set_token(lease.token);
  if (lease.state != LeaseState::kWaiting)
    *out.mutable_granted_at() = backendd::ToProto(record.granted_at);
  const std::shared_ptr<const Snapshot> now_values = store_->latest();
  for (const Entry& entry : record.entries) {
    v1::LeaseEntryState* state = out.add_entries();
    state->set_flag(Catalogue::Get().info(entry.flag).name);
    state->mutable_scope()->set_kind(record.is_private          ? v1::SCOPE_KIND_SESSION
                                     : entry.device.has_value() ? v1::SCOPE_KIND_DEVICE
                                                                : v1::SCOPE_KIND_NODE);
    if (entry.device.has_value()) state->mutable_scope()->set_device(*entry.device);
    *state->mutable_requested() = backendd::ToProto(entry.value);
    if (entry.via.has_value()) state->set_via(Catalogue::Get().info(*entry.via).name);
    Reading reading = now_values->Read(entry.flag, entry.device);
    if (record.is_private) {
      auto own_reading = now_values->ReadFor(entry.flag, std::nullopt, lease.session);
      if (own_reading.ok()) reading = *std::move(own_reading);
    }
    if (reading.value.has_value()) *state->mutable_effective() = backendd::ToProto(*reading.value);
    if (lease.state != LeaseState::kActive || reading.value == entry.value) continue;
    for (const Explanation& line : now_values->Explain(
             entry.flag, entry.device,
             record.is_private ? std::optional<SessionId>(lease.session) : std::nullopt)) {
      if (line.winner && line.lease.has_value() && *line.lease != id)
        state->set_shadowed_by(HolderText(*line.lease));
    }
  }
  return out;
}

// Names, scopes, devices and values of entries, every violation at once.
absl::Status Node::Check(const Caller& caller,
                         const google::protobuf::RepeatedPtrField<v1::LeaseEntry>& asked,
                         SessionId session, const char* field, bool writing,
                         std::vector<Entry>* entries, bool* is_private,
                         std::vector<Violation>* violations) {
  std::vector<RequestedEntry> requested;
  int private_ones = 0;
  for (int i = 0; i < asked.size(); ++i) {
    const v1::LeaseEntry& entry = asked[i];
    const std::string path = absl::StrCat(field, "[", i, "]");
    if (entry.op() == v1::ENTRY_OP_AT_MOST || entry.op() == v1::ENTRY_OP_AT_LEAST)
      violations->push_back(
          {path + ".op", Reason::kOpUnsupported, "AT_MOST and AT_LEAST are not offered; use SET"});
    RequestedEntry one{entry.flag(), std::nullopt, std::nullopt, path, std::nullopt};
    if (entry.has_value()) one.value = FromProto(entry.value());
    if (entry.scope().kind() == v1::SCOPE_KIND_SESSION) {
      ++private_ones;
    } else if (entry.scope().kind() == v1::SCOPE_KIND_DEVICE) {
      auto device = FindDevice(entry.scope().device(), store_->latest()->facts());
      if (!device.ok()) {
        violations->push_back(
            {path + ".scope.device", *ReasonOf(device.status()), Str(device.status().message())});
        continue;
      }
      one.device = *std::move(device);
    }
    requested.push_back(std::move(one));
  }
  *is_private = private_ones > 0;
  if (private_ones > 0 && private_ones < asked.size())
    violations->push_back(
        {field, Reason::kScopeInvalid, "a lease is all of SESSION scope or none of it"});
  RETURN_IF_ERROR(Admit(caller, *is_private ? Act::kSession : Act::kSharedLease));
  *entries =
      store_->Check(requested, *is_private ? std::optional<SessionId>(session) : std::nullopt,
                    writing, violations);
  return absl::OkStatus();
}

LeaseId Node::AcquireLease(const Caller& caller, const v1::AcquireLeaseRequest& request,
                           Done<v1::AcquireLeaseResponse> done) {
  Turn turn(this);
  absl::Status status = Own(caller, request.session_id()).status();
  if (status.ok()) status = CheckRequest(request);
  if (!status.ok()) {
    After([done, status] { done(status); });
    return LeaseId();
  }
  if (!Once(caller, request, &done)) return LeaseId();
  return Acquire(caller, request, std::move(done));
}

LeaseId Node::Acquire(const Caller& caller, const v1::AcquireLeaseRequest& request,
                      Done<v1::AcquireLeaseResponse> done) {
  const SessionId session(request.session_id());
  const auto fail = [&](absl::Status status) {
    mutex_.AssertHeld();
    After([done, status = std::move(status)] { done(status); });
    return LeaseId();
  };
  if (draining_) return fail(Error(Reason::kDraining, "the daemon drains; no new leases"));
  if (auto status = CheckRevision(request.has_if_revision(), request.if_revision()); !status.ok())
    return fail(status);
  std::vector<Violation> violations;
  LeaseRecord record;
  record.caller = caller;
  record.owner = request.owner();
  record.reason = request.reason();
  record.priority = request.priority();
  record.allow_shadowed = request.allow_shadowed();
  if (request.entries().empty())
    violations.push_back({"entries", Reason::kArgumentInvalid, "a lease needs an entry"});
  if (request.entries_size() > options_.quotas.entries_per_lease)
    return fail(QuotaExceeded("entries_per_lease", options_.quotas.entries_per_lease,
                              "entries of a lease"));
  if (auto status = Check(caller, request.entries(), session, "entries", true, &record.entries,
                          &record.is_private, &violations);
      !status.ok())
    return fail(status);
  std::optional<absl::Duration> ttl;
  if (request.has_ttl())
    ttl = CheckedDuration(request.ttl(), "ttl", kLeastTtl, kMostTtl, &violations);
  absl::Duration wait = absl::ZeroDuration();
  if (request.has_wait())
    wait = CheckedDuration(request.wait(), "wait", absl::ZeroDuration(), kMostWait, &violations);
  if (request.priority() < 0)
    violations.push_back({"priority", Reason::kArgumentInvalid, "priority is 0 or more"});
  if (request.priority() > PriorityCap(caller.role))
    return fail(Error(Reason::kPeerNotAllowed,
                      absl::StrCat("role '", RoleName(caller.role), "' has priorities up to ",
                                   PriorityCap(caller.role), ", not ", request.priority()),
                      {{"role", Str(RoleName(caller.role))},
                       {"lacks", absl::StrCat("priority ", request.priority())}}));
  if (request.validate_only()) {
    v1::AcquireLeaseResponse response;
    PutViolations(violations, response.mutable_violations());
    Reply(done, std::move(response));
    return LeaseId();
  }
  if (!violations.empty()) return fail(ErrorFrom(std::move(violations)));
  const int of_session = static_cast<int>(leases_.OfSession(session).size());
  if (of_session >= options_.quotas.leases_per_session ||
      static_cast<int>(leases_.size()) >= options_.quotas.leases) {
    const bool own = of_session >= options_.quotas.leases_per_session;
    const int limit = own ? options_.quotas.leases_per_session : options_.quotas.leases;
    return fail(QuotaExceeded(own ? "leases_per_session" : "leases", limit, "leases"));
  }
  if (!record.is_private) {
    if (auto status = Throttle(caller); !status.ok()) return fail(status);
  }
  std::vector<LeaseKey> keys = KeysOf(record.entries, record.is_private);
  const LeaseMode mode = ModeOf(request.mode());
  record.done = std::move(done);
  const auto blocker = leases_.Blocker(session, keys, mode);
  if (!blocker.has_value()) {
    const LeaseId id = leases_.Grant(session, std::move(keys), mode, ttl).id;
    records_.emplace(id, std::move(record));
    Grant(id);
    return LeaseId();
  }
  done = record.done;
  if (wait == absl::ZeroDuration()) return fail(Conflict(*blocker));
  const auto of_caller = [&](LeaseId waiter) {
    mutex_.AssertHeld();
    return records_.at(waiter).caller.peer->uid == caller.peer->uid;
  };
  if (leases_.WaitersOn(keys, of_caller) >= options_.quotas.waiters_per_key)
    return fail(Error(Reason::kQueueFull,
                      absl::StrCat("at most ", options_.quotas.waiters_per_key,
                                   " leases of one user wait for a flag"),
                      {{"limit", absl::StrCat(options_.quotas.waiters_per_key)}}));
  const LeaseId id = leases_.Enqueue(session, std::move(keys), mode, ttl, wait).id;
  records_.emplace(id, std::move(record));
  return id;
}

// An active lease of the table whose entries are not in force yet.
void Node::Grant(LeaseId id) {
  const HeldLease& lease = *leases_.Find(id);
  LeaseRecord& record = records_.at(id);
  if (!record.is_private && !record.allow_shadowed) {
    for (const Entry& entry : record.entries) {
      const auto covering = store_->Covering(entry, record.priority, lease.session);
      if (covering.has_value()) return LeaveLine(id, Conflict(*covering));
    }
  }
  record.granted_at = clock_->Wall();
  LeaseOwner owner;
  owner.lease = id;
  owner.session = lease.session;
  owner.is_private = record.is_private;
  owner.priority = record.priority;
  owner.writer = {PeerText(*record.caller.peer), record.reason};
  store_->PutLease(owner, record.entries);
  std::set<SessionId> touched;
  if (record.is_private) touched.insert(lease.session);
  auto done = std::move(record.done);
  record.done = nullptr;
  Commit("lease granted", true, std::move(touched), TokenOf(lease),
         [this, id, session = lease.session, done = std::move(done)](const Change* change) {
           mutex_.AssertHeld();
           if (leases_.Find(id) == nullptr) return;
           v1::AcquireLeaseResponse response;
           *response.mutable_lease() = Show(id, records_.at(id).caller);
           for (const ValueChange& one : change->changes)
             *response.add_changes() = node::ToProto(one);
           const auto own = change->session_changes.find(session);
           if (own != change->session_changes.end()) {
             for (const ValueChange& one : own->second)
               *response.add_changes() = node::ToProto(one);
           }
           for (const std::string& warning : change->warnings)
             response.add_warnings(ValidUtf8(warning));
           Reply(done, std::move(response));
         });
}

// Out of the table without having been in force.
void Node::LeaveLine(LeaseId id, const absl::Status& why) {
  const SessionId session = leases_.Find(id)->session;
  auto done = std::move(records_.at(id).done);
  records_.erase(id);
  leases_.Forget(id, session, v1::END_CAUSE_UNSPECIFIED);
  if (done) After([done = std::move(done), why] { done(why); });
}

void Node::GrantWaiters() {
  while (const auto id = leases_.GrantNext()) Grant(*id);
}

void Node::CancelWait(LeaseId id) {
  Turn turn(this);
  const HeldLease* lease = leases_.Find(id);
  if (lease == nullptr) return;
  if (lease->state == LeaseState::kWaiting) {
    LeaveLine(id, absl::CancelledError("the call was cancelled"));
    GrantWaiters();
  }
}

absl::StatusOr<LeaseId> Node::OwnLease(const Caller& caller, uint64_t session,
                                       uint64_t lease_id) const {
  if (lease_id == 0) return Error(Reason::kIdInvalid, "lease_id 0 is no id");
  ASSIGN_OR_RETURN(const SessionId own, Own(caller, session));
  const LeaseId id(lease_id);
  const HeldLease* lease = leases_.Find(id);
  if (lease != nullptr && lease->session == own && lease->state == LeaseState::kActive) return id;
  if (const auto* ended = leases_.FindEnded(id); ended != nullptr && ended->session == own)
    return Error(Reason::kLeaseUnknown, absl::StrCat("lease ", Prefix(id), " has ended"),
                 {{"cause", CauseName(static_cast<v1::EndCause>(ended->cause))}});
  if (lease != nullptr && lease->session == own)
    return Error(Reason::kLeaseUnknown, absl::StrCat("lease ", Prefix(id), " is not in force"));
  if (lease != nullptr && MaySee(caller.role))
    return Error(Reason::kLeaseNotYours, absl::StrCat("lease ", Prefix(id), " is another's"));
  return Error(Reason::kLeaseUnknown, absl::StrCat("there is no lease ", Prefix(id)));
}

void Node::RenewLease(const Caller& caller, const v1::RenewLeaseRequest& request,
                      Done<v1::RenewLeaseResponse> done) {
  Turn turn(this);
  const auto id = OwnLease(caller, request.session_id(), request.lease_id());
  if (!id.ok()) return After([done, status = id.status()] { done(status); });
  const HeldLease& lease = *leases_.Find(*id);
  if (lease.deadline <= clock_->Steady()) {  // due, though the timer has not come round to it
    End({}, {{*id, v1::END_CAUSE_TTL_EXPIRED}}, nullptr);
    return After([done, id = *id] {
      done(Error(Reason::kLeaseUnknown, absl::StrCat("lease ", Prefix(id), " has ended"),
                 {{"cause", "TTL_EXPIRED"}}));
    });
  }
  leases_.Renew(*id);
  v1::RenewLeaseResponse response;
  if (lease.ttl.has_value()) *response.mutable_ttl() = backendd::ToProto(*lease.ttl);
  Reply(done, std::move(response));
}

void Node::UpdateLease(const Caller& caller, const v1::UpdateLeaseRequest& request,
                       Done<v1::UpdateLeaseResponse> done) {
  Turn turn(this);
  const auto fail = [&](absl::Status status) {
    mutex_.AssertHeld();
    After([done, status = std::move(status)] { done(status); });
  };
  const auto id = OwnLease(caller, request.session_id(), request.lease_id());
  if (!id.ok()) return fail(id.status());
  if (auto status = CheckRequest(request); !status.ok()) return fail(status);
  if (!Once(caller, request, &done)) return;
  const HeldLease& lease = *leases_.Find(*id);
  LeaseRecord& record = records_.at(*id);
  std::vector<Violation> violations;
  std::vector<Entry> set, drop;
  bool set_private = record.is_private, drop_private = record.is_private;
  if (!request.set_entries().empty()) {
    if (auto status = Check(caller, request.set_entries(), lease.session, "set_entries", true, &set,
                            &set_private, &violations);
        !status.ok())
      return fail(status);
  }
  if (!request.drop_entries().empty()) {
    if (auto status = Check(caller, request.drop_entries(), lease.session, "drop_entries", false,
                            &drop, &drop_private, &violations);
        !status.ok())
      return fail(status);
  }
  if (set_private != record.is_private || drop_private != record.is_private)
    violations.push_back(
        {"set_entries", Reason::kScopeInvalid, "a lease is all of SESSION scope or none of it"});
  std::optional<absl::Duration> ttl;
  if (request.has_ttl())
    ttl = CheckedDuration(request.ttl(), "ttl", kLeastTtl, kMostTtl, &violations);
  std::vector<Entry> entries = record.entries;
  const auto at = [&](const Entry& entry) {
    return std::find_if(entries.begin(), entries.end(), [&](const Entry& one) {
      return one.flag == entry.flag && one.device == entry.device;
    });
  };
  for (const Entry& entry : drop) {
    if (auto found = at(entry); found != entries.end()) entries.erase(found);
  }
  for (const Entry& entry : set) {
    if (auto found = at(entry); found != entries.end()) {
      *found = entry;
    } else {
      entries.push_back(entry);
    }
  }
  if (entries.empty())
    violations.push_back({"drop_entries", Reason::kArgumentInvalid, "a lease needs an entry"});
  v1::UpdateLeaseResponse response;
  if (request.validate_only()) {
    PutViolations(violations, response.mutable_violations());
    return Reply(done, std::move(response));
  }
  if (!violations.empty()) return fail(ErrorFrom(std::move(violations)));
  std::vector<LeaseKey> keys = KeysOf(entries, record.is_private);
  const LeaseMode mode =
      request.mode() == v1::LEASE_MODE_UNSPECIFIED ? lease.mode : ModeOf(request.mode());
  if (const auto blocker = leases_.Blocker(lease.session, keys, mode, *id))
    return fail(Conflict(*blocker));
  if (!record.is_private) {
    if (auto status = Throttle(caller); !status.ok()) return fail(status);
  }
  const bool new_token = mode != lease.mode || keys != lease.keys;
  if (ttl.has_value()) leases_.SetTtl(*id, *ttl);
  leases_.Replace(*id, std::move(keys), mode);
  record.entries = entries;
  LeaseOwner owner{*id,
                   lease.session,
                   record.is_private,
                   record.priority,
                   {PeerText(*record.caller.peer), record.reason}};
  store_->PutLease(owner, std::move(entries));
  Commit("lease updated", new_token,
         record.is_private ? std::set<SessionId>{lease.session} : std::set<SessionId>{},
         new_token ? TokenOf(lease) : control::v1::Command(),
         [this, id = *id, caller, done](const Change* change) {
           mutex_.AssertHeld();
           v1::UpdateLeaseResponse response;
           if (leases_.Find(id) != nullptr) *response.mutable_lease() = Show(id, caller);
           if (change != nullptr) {
             for (const ValueChange& one : change->changes)
               *response.add_changes() = node::ToProto(one);
           }
           Reply(done, std::move(response));
         });
  GrantWaiters();  // a key less, or SHARED now
}

void Node::ReleaseLease(const Caller& caller, const v1::ReleaseLeaseRequest& request,
                        Done<v1::ReleaseLeaseResponse> done) {
  Turn turn(this);
  const auto fail = [&](absl::Status status) {
    mutex_.AssertHeld();
    After([done, status = std::move(status)] { done(status); });
  };
  if (auto status = Admit(caller, Act::kSession); !status.ok()) return fail(status);
  if (auto status = CheckRequest(request); !status.ok()) return fail(status);
  if (request.has_owner() && request.owner().empty())
    return fail(Error(Reason::kArgumentInvalid, "owner is empty; it names the leases to end"));
  if (request.has_session_id()) {
    if (auto own = Own(caller, request.session_id()); !own.ok()) return fail(own.status());
  }
  if (!Once(caller, request, &done)) return;
  const bool admin = Admit(caller, Act::kForeign).ok();
  std::vector<std::pair<LeaseId, v1::EndCause>> ending;
  const auto take = [&](LeaseId id) {
    mutex_.AssertHeld();
    const bool own = SameProcess(*records_.at(id).caller.peer, *caller.peer);
    if (own || admin) ending.push_back({id, own ? v1::END_CAUSE_RELEASED : v1::END_CAUSE_KICKED});
    return own || admin;
  };
  v1::ReleaseLeaseResponse response;
  response.set_revision(store_->latest()->revision());
  if (request.has_owner()) {
    for (LeaseId id : leases_.All()) {
      if (records_.at(id).owner == request.owner() &&
          leases_.Find(id)->state == LeaseState::kActive)
        take(id);
    }
  } else {
    const LeaseId id(request.lease_id());
    if (!id) return fail(Error(Reason::kIdInvalid, "lease_id 0 is no id"));
    const HeldLease* lease = leases_.Find(id);
    const auto unknown = [&] {
      return fail(Error(Reason::kLeaseUnknown, absl::StrCat("there is no lease ", Prefix(id))));
    };
    if (lease == nullptr) {
      const auto* ended = leases_.FindEnded(id);
      const bool own = ended != nullptr && Own(caller, ended->session.value()).ok();
      if (ended == nullptr || !(own || MaySee(caller.role))) return unknown();
      response.set_already_released(true);
    } else if (!take(id)) {
      if (!MaySee(caller.role)) return unknown();
      return fail(
          Error(Reason::kLeaseNotYours, absl::StrCat("lease ", Prefix(id), " is another's")));
    } else if (lease->state == LeaseState::kEnding) {
      ending.clear();
      response.set_already_released(true);
    } else if (lease->state == LeaseState::kWaiting) {
      ending.clear();
      LeaveLine(id, absl::CancelledError("the lease was released while it waited"));
      response.set_released(1);
      GrantWaiters();
    }
  }
  if (ending.empty()) return Reply(done, std::move(response));
  response.set_released(static_cast<int32_t>(ending.size()));
  auto revision = std::make_shared<uint64_t>(0);
  *revision = End({}, ending, [this, done, response, revision]() mutable {
    mutex_.AssertHeld();
    After([done, response, revision]() mutable {
      response.set_revision(*revision);
      done(std::move(response));
    });
  });
}

absl::StatusOr<v1::GetLeaseResponse> Node::GetLease(const Caller& caller,
                                                    const v1::GetLeaseRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  if (request.lease_id() == 0) return Error(Reason::kIdInvalid, "lease_id 0 is no id");
  Turn turn(this);
  const LeaseId id(request.lease_id());
  const HeldLease* lease = leases_.Find(id);
  if (lease == nullptr ||
      (!MaySee(caller.role) && !SameProcess(*records_.at(id).caller.peer, *caller.peer)))
    return Error(Reason::kLeaseUnknown, absl::StrCat("there is no lease ", Prefix(id)));
  v1::GetLeaseResponse response;
  *response.mutable_lease() = Show(id, caller);
  return response;
}

absl::StatusOr<v1::ListLeasesResponse> Node::ListLeases(const Caller& caller,
                                                        const v1::ListLeasesRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const Page page, PageOf(request.page_size(), request.page_token()));
  std::optional<FlagId> flag;
  if (!request.flag().empty()) {
    ASSIGN_OR_RETURN(flag, Catalogue::Get().Lookup(request.flag()));
  }
  Turn turn(this);
  v1::ListLeasesResponse response;
  response.set_revision(store_->latest()->revision());
  for (LeaseId id : leases_.All()) {
    const HeldLease& lease = *leases_.Find(id);
    if (lease.order < page.from) continue;
    if (flag.has_value()) {
      const auto& entries = records_.at(id).entries;
      if (std::none_of(entries.begin(), entries.end(),
                       [&](const Entry& entry) { return entry.flag == *flag; }))
        continue;
    }
    if (static_cast<size_t>(response.leases_size()) == page.size) {
      response.set_next_page_token(PageToken(response.revision(), lease.order));
      break;
    }
    *response.add_leases() = Show(id, caller);
  }
  return response;
}

}  // namespace backendd::node
