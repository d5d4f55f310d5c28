// Flags: read, explained, written, watched; and the node itself.
#include <unistd.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "google/protobuf/stubs/common.h"
#include "server/node/flags/queries.h"
#include "server/node/node.h"
#include "server/node/node_impl.h"

namespace backendd::node {
namespace {

constexpr size_t kMostListed = 64;  // revisions that lists are leafed through in

absl::StatusOr<std::optional<DeviceId>> DeviceIf(bool has, const std::string& text,
                                                 const NodeFacts& facts) {
  if (!has) return std::optional<DeviceId>();
  ASSIGN_OR_RETURN(DeviceId device, FindDevice(text, facts));
  return std::optional<DeviceId>(std::move(device));
}

v1::FlagReading ShowReading(FlagId flag, const Reading& reading) {
  v1::FlagReading out;
  out.set_flag(Catalogue::Get().info(flag).name);
  if (reading.value.has_value()) {
    *out.mutable_value() = backendd::ToProto(*reading.value);
  } else {
    out.mutable_unavailable()->set_reason(reading.unavailable);
  }
  out.set_layer(static_cast<v1::Layer>(reading.layer));
  out.set_source(ValidUtf8(reading.source));
  out.set_since_revision(reading.since);
  if (reading.consistent.has_value()) out.set_consistent(*reading.consistent);
  if (reading.requested.has_value())
    *out.mutable_requested() = backendd::ToProto(*reading.requested);
  return out;
}

// The devices whose value differs from the node's.
void PutDevices(const Snapshot& snapshot, FlagId flag, v1::FlagReading* out) {
  const Reading& node = snapshot.Read(flag, std::nullopt);
  for (const DeviceId& device : snapshot.devices()) {
    const Reading& own = snapshot.Read(flag, device);
    if (!own.value.has_value() || own.value == node.value) continue;
    v1::DeviceReading* one = out->add_devices();
    one->set_device(device);
    *one->mutable_value() = backendd::ToProto(*own.value);
  }
}

v1::FlagDescription Describe(const FlagInfo& info) {
  v1::FlagDescription out;
  out.set_flag(info.name);
  out.set_torch_spelling(info.torch_spelling);
  for (FlagType type : info.types) out.add_types(Str(TypeName(type)));
  out.mutable_allowed()->Assign(info.allowed.begin(), info.allowed.end());
  if (info.min.has_value()) out.set_min(*info.min);
  if (info.max.has_value()) out.set_max(*info.max);
  if (info.default_value.has_value())
    *out.mutable_default_value() = backendd::ToProto(*info.default_value);
  out.set_default_note(info.default_note);
  out.mutable_environment()->Assign(info.environment.begin(), info.environment.end());
  for (FlagScope scope : info.scopes) out.add_scopes(static_cast<v1::ScopeKind>(scope));
  out.set_access(static_cast<v1::FlagAccess>(info.access));
  out.set_binding(static_cast<v1::FlagBinding>(info.binding));
  out.set_replaced_by(info.replaced_by);
  out.set_needs(info.needs);
  out.set_honoured_by(info.honoured_by);
  out.set_summary(info.summary);
  out.mutable_arguments()->Assign(info.arguments.begin(), info.arguments.end());
  return out;
}

}  // namespace

absl::StatusOr<Reading> Node::Read(const Snapshot& snapshot, FlagId flag,
                                   absl::Span<const std::string> arguments,
                                   const std::optional<DeviceId>& device,
                                   std::optional<SessionId> session) const {
  ASSIGN_OR_RETURN(Reading reading, Answer(snapshot, flag, arguments, device, session));
  if (!Catalogue::Get().info(flag).live || !device.has_value()) return reading;
  if (const auto plans = workers_->FftPlans(*device); plans.has_value())
    reading.value = static_cast<int64_t>(*plans);
  return reading;
}

void Node::KeepListed(std::shared_ptr<const Snapshot> snapshot) {
  MutexLock lock(&published_mutex_);
  const uint64_t revision = snapshot->revision();
  listed_[revision] = std::move(snapshot);
  if (listed_.size() > kMostListed) listed_.erase(listed_.begin());
}

absl::StatusOr<std::shared_ptr<const Snapshot>> Node::Listed(uint64_t revision) const {
  MutexLock lock(&published_mutex_);
  if (revision == 0 || revision == published_->revision()) return published_;
  const auto found = listed_.find(revision);
  if (found != listed_.end()) return found->second;
  return Error(Reason::kRevisionStale,
               absl::StrCat("the list began at revision ", revision, "; now it is ",
                            published_->revision(), ": begin anew"));
}

absl::StatusOr<v1::GetFlagResponse> Node::GetFlag(const Caller& caller,
                                                  const v1::GetFlagRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const FlagId flag, Catalogue::Get().Lookup(request.flag()));
  ASSIGN_OR_RETURN(const auto session,
                   OwnIf(caller, request.has_session_id(), request.session_id()));
  const std::shared_ptr<const Snapshot> snapshot = published();
  ASSIGN_OR_RETURN(const auto device,
                   DeviceIf(request.has_device(), request.device(), snapshot->facts()));
  v1::GetFlagResponse response;
  const std::vector<std::string> arguments(request.arguments().begin(), request.arguments().end());
  ASSIGN_OR_RETURN(const Reading reading, Read(*snapshot, flag, arguments, device, session));
  *response.mutable_reading() = ShowReading(flag, reading);
  if (!device.has_value()) PutDevices(*snapshot, flag, response.mutable_reading());
  response.set_revision(snapshot->revision());
  response.set_epoch(epoch_);
  return response;
}

absl::StatusOr<v1::ListFlagsResponse> Node::ListFlags(const Caller& caller,
                                                      const v1::ListFlagsRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const Page page, PageOf(request.page_size(), request.page_token()));
  ASSIGN_OR_RETURN(const auto session,
                   OwnIf(caller, request.has_session_id(), request.session_id()));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Snapshot> snapshot, Listed(page.revision));
  ASSIGN_OR_RETURN(const auto device,
                   DeviceIf(request.has_device(), request.device(), snapshot->facts()));
  std::vector<const FlagInfo*> flags;
  for (const FlagInfo& info : Catalogue::Get().flags()) {
    if (absl::StartsWith(info.name, request.prefix()) && info.access != FlagAccess::kAction &&
        info.arguments.empty() && !info.over_tensors)
      flags.push_back(&info);
  }
  std::sort(flags.begin(), flags.end(),
            [](const FlagInfo* a, const FlagInfo* b) { return a->name < b->name; });
  v1::ListFlagsResponse response;
  response.set_revision(snapshot->revision());
  response.set_epoch(epoch_);
  for (size_t i = page.from; i < flags.size(); ++i) {
    auto own = Read(*snapshot, flags[i]->id, {}, device, session);
    Reading reading = own.ok() ? *std::move(own) : snapshot->Read(flags[i]->id, device);
    if (!own.ok()) {
      reading.value.reset();
      reading.unavailable = Str(own.status().message());
    }
    if (request.changed_only() && reading.layer == Layer::kBuiltIn) continue;
    if (static_cast<size_t>(response.readings_size()) == page.size) {
      response.set_next_page_token(PageToken(snapshot->revision(), i));
      KeepListed(snapshot);
      break;
    }
    *response.add_readings() = ShowReading(flags[i]->id, reading);
    if (!device.has_value())
      PutDevices(*snapshot, flags[i]->id, response.mutable_readings(response.readings_size() - 1));
  }
  return response;
}

absl::StatusOr<v1::DescribeFlagResponse> Node::DescribeFlag(
    const Caller& caller, const v1::DescribeFlagRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  v1::DescribeFlagResponse response;
  const Catalogue& catalogue = Catalogue::Get();
  if (!request.flag().empty()) {
    ASSIGN_OR_RETURN(const FlagId flag, catalogue.Lookup(request.flag()));
    *response.add_descriptions() = Describe(catalogue.info(flag));
    return response;
  }
  for (const FlagInfo& info : catalogue.flags()) *response.add_descriptions() = Describe(info);
  std::sort(response.mutable_descriptions()->begin(), response.mutable_descriptions()->end(),
            [](const auto& a, const auto& b) { return a.flag() < b.flag(); });
  return response;
}

absl::StatusOr<v1::ExplainFlagResponse> Node::ExplainFlag(const Caller& caller,
                                                          const v1::ExplainFlagRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const FlagId flag, Catalogue::Get().Lookup(request.flag()));
  ASSIGN_OR_RETURN(const auto session,
                   OwnIf(caller, request.has_session_id(), request.session_id()));
  const std::shared_ptr<const Snapshot> snapshot = published();
  ASSIGN_OR_RETURN(const auto device,
                   DeviceIf(request.has_device(), request.device(), snapshot->facts()));
  v1::ExplainFlagResponse response;
  ASSIGN_OR_RETURN(const Reading reading, Read(*snapshot, flag, {}, device, session));
  *response.mutable_reading() = ShowReading(flag, reading);
  if (!device.has_value()) PutDevices(*snapshot, flag, response.mutable_reading());
  for (const Explanation& line : snapshot->Explain(flag, device, session)) {
    v1::LayerValue* value = response.add_layers();
    value->set_layer(static_cast<v1::Layer>(line.entry.layer));
    value->mutable_scope()->set_kind(line.entry.layer == Layer::kSession ? v1::SCOPE_KIND_SESSION
                                     : line.entry.device.has_value()     ? v1::SCOPE_KIND_DEVICE
                                                                         : v1::SCOPE_KIND_NODE);
    if (line.entry.device.has_value()) value->mutable_scope()->set_device(*line.entry.device);
    *value->mutable_value() = backendd::ToProto(line.entry.value);
    value->set_source(ValidUtf8(line.entry.source));
    value->set_reason(ValidUtf8(line.entry.reason));
    value->set_revision(line.entry.revision);
    if (line.entry.via.has_value()) value->set_via(Catalogue::Get().info(*line.entry.via).name);
    value->set_winner(line.winner);
    value->set_warning(ValidUtf8(line.entry.warning));
  }
  for (auto node = TreeNodeOf(flag); node.has_value(); node = ParentOf(*node)) {
    const FlagId asked = FlagOf(*node);
    Reading step = snapshot->Read(asked, device);
    if (session.has_value()) {
      if (auto own = snapshot->ReadFor(asked, device, *session); own.ok()) step = *std::move(own);
    }
    v1::WalkStep* out = response.add_walk();
    out->set_flag(Catalogue::Get().info(asked).name);
    *out->mutable_value() = backendd::ToProto(step.entry);
    if (!std::holds_alternative<None>(step.entry)) break;
  }
  *response.mutable_description() = Describe(Catalogue::Get().info(flag));
  response.set_revision(snapshot->revision());
  response.set_epoch(epoch_);
  return response;
}

void Node::SetFlags(const Caller& caller, const v1::SetFlagsRequest& request,
                    Done<v1::SetFlagsResponse> done) {
  Turn turn(this);
  const auto fail = [&](absl::Status status) {
    mutex_.AssertHeld();
    After([done, status = std::move(status)] { done(status); });
  };
  auto status = Admit(caller, request.has_session_id() ? Act::kSession : Act::kBase);
  if (status.ok()) status = CheckRequest(request);
  if (!status.ok()) return fail(status);
  const auto session = OwnIf(caller, request.has_session_id(), request.session_id());
  if (!session.ok()) return fail(session.status());
  if (!Once(caller, request, &done)) return;
  status = CheckRevision(request.has_if_revision(), request.if_revision());
  if (!status.ok()) return fail(status);
  std::vector<Violation> violations;
  std::vector<RequestedEntry> requested;
  if (request.assignments().empty())
    violations.push_back({"assignments", Reason::kArgumentInvalid, "nothing to set"});
  for (int i = 0; i < request.assignments_size(); ++i) {
    const v1::FlagAssignment& one = request.assignments(i);
    RequestedEntry entry{one.flag(), std::nullopt, std::nullopt,
                         absl::StrCat("assignments[", i, "]"), std::nullopt};
    if (one.has_value()) entry.value = FromProto(one.value());
    if (one.has_if_mod_revision()) entry.if_mod_revision = one.if_mod_revision();
    if (one.scope().kind() == v1::SCOPE_KIND_DEVICE) {
      auto device = FindDevice(one.scope().device(), store_->latest()->facts());
      if (!device.ok()) {
        violations.push_back({entry.field + ".scope.device", *ReasonOf(device.status()),
                              Str(device.status().message())});
        continue;
      }
      entry.device = *std::move(device);
    }
    if (one.scope().kind() == v1::SCOPE_KIND_SESSION && !session->has_value())
      violations.push_back(
          {entry.field + ".scope", Reason::kScopeInvalid, "SESSION scope needs a session_id"});
    requested.push_back(std::move(entry));
  }
  std::vector<Entry> entries = store_->Check(requested, *session, true, &violations);
  v1::SetFlagsResponse response;
  response.set_revision(store_->latest()->revision());
  if (request.validate_only()) {
    PutViolations(violations, response.mutable_violations());
    return Reply(done, std::move(response));
  }
  if (!violations.empty()) return fail(ErrorFrom(std::move(violations)));
  if (!session->has_value()) status = Throttle(caller);
  if (!status.ok()) return fail(status);
  const Writer writer{PeerText(*caller.peer), request.reason()};
  std::set<SessionId> touched;
  if (session->has_value()) {
    store_->SetBare(**session, std::move(entries), writer);
    touched.insert(**session);
  } else {
    store_->SetBase(std::move(entries), writer);
  }
  auto revision = std::make_shared<uint64_t>(0);
  *revision =
      Commit(session->has_value() ? "private flags set" : "flags set", false, std::move(touched),
             {}, [this, done, own = *session, response, revision](const Change* change) mutable {
               mutex_.AssertHeld();
               response.set_revision(*revision);
               if (change != nullptr) {
                 const auto& changes = own.has_value() && change->session_changes.count(*own)
                                           ? change->session_changes.at(*own)
                                           : change->changes;
                 for (const ValueChange& one : changes)
                   *response.add_changes() = node::ToProto(one);
                 for (FlagId kept : change->kept)
                   response.add_kept(Catalogue::Get().info(kept).name);
                 for (const std::string& warning : change->warnings)
                   response.add_warnings(ValidUtf8(warning));
               }
               Reply(done, std::move(response));
             });
}

void Node::UnsetFlags(const Caller& caller, const v1::UnsetFlagsRequest& request,
                      Done<v1::UnsetFlagsResponse> done) {
  Turn turn(this);
  const auto fail = [&](absl::Status status) {
    mutex_.AssertHeld();
    After([done, status = std::move(status)] { done(status); });
  };
  auto status = Admit(caller, request.has_session_id() ? Act::kSession : Act::kBase);
  if (status.ok()) status = CheckRequest(request);
  if (!status.ok()) return fail(status);
  const auto session = OwnIf(caller, request.has_session_id(), request.session_id());
  if (!session.ok()) return fail(session.status());
  if (!Once(caller, request, &done)) return;
  status = CheckRevision(request.has_if_revision(), request.if_revision());
  if (!status.ok()) return fail(status);
  std::vector<Violation> violations;
  std::vector<RequestedEntry> requested;
  const auto device = DeviceIf(request.scope().kind() == v1::SCOPE_KIND_DEVICE,
                               request.scope().device(), store_->latest()->facts());
  if (!device.ok()) return fail(device.status());
  for (int i = 0; i < request.flags_size(); ++i)
    requested.push_back(
        {request.flags(i), *device, std::nullopt, absl::StrCat("flags[", i, "]"), std::nullopt});
  if (request.flags_size() == 0)
    violations.push_back({"flags", Reason::kArgumentInvalid, "nothing to unset"});
  if (request.scope().kind() == v1::SCOPE_KIND_SESSION && !session->has_value())
    violations.push_back(
        {"scope", Reason::kScopeInvalid, "the scope SESSION needs the request's session_id"});
  const std::vector<Entry> entries = store_->Check(requested, *session, false, &violations);
  v1::UnsetFlagsResponse response;
  response.set_revision(store_->latest()->revision());
  if (request.validate_only()) {
    PutViolations(violations, response.mutable_violations());
    return Reply(done, std::move(response));
  }
  if (!violations.empty()) return fail(ErrorFrom(std::move(violations)));
  if (!session->has_value()) status = Throttle(caller);
  if (!status.ok()) return fail(status);
  std::set<SessionId> touched;
  if (session->has_value()) {
    store_->UnsetBare(**session, entries);
    touched.insert(**session);
  } else {
    store_->UnsetBase(entries);
  }
  auto revision = std::make_shared<uint64_t>(0);
  *revision =
      Commit("flags unset", false, std::move(touched), {},
             [this, done, own = *session, response, revision](const Change* change) mutable {
               mutex_.AssertHeld();
               response.set_revision(*revision);
               if (change != nullptr) {
                 const auto& changes = own.has_value() && change->session_changes.count(*own)
                                           ? change->session_changes.at(*own)
                                           : change->changes;
                 for (const ValueChange& one : changes)
                   *response.add_changes() = node::ToProto(one);
               }
               Reply(done, std::move(response));
             });
}

uint64_t Node::WatchFlags(const Caller& caller, const v1::WatchFlagsRequest& request,
                          WatchSink* sink) {
  Turn turn(this);
  auto watcher = std::make_unique<Watcher>();
  std::vector<Violation> violations;
  watcher->sink = sink;
  watcher->interval = absl::Seconds(10);
  if (request.has_progress_interval())
    watcher->interval = CheckedDuration(request.progress_interval(), "progress_interval",
                                        absl::Milliseconds(100), absl::Hours(1), &violations);
  watcher->prefixes = {request.prefixes().begin(), request.prefixes().end()};
  const auto session = OwnIf(caller, request.has_session_id(), request.session_id());
  absl::Status status = Admit(caller, Act::kRead);
  if (status.ok()) status = ErrorFrom(std::move(violations));
  if (status.ok()) status = session.status();
  if (status.ok()) {
    watcher->session = *session;
    watcher->peer = caller.peer;
    const auto same = [&](const auto& other) {
      return other.second->session == *session &&
             (session->has_value() || SameProcess(*other.second->peer, *caller.peer));
    };
    if (absl::c_count_if(watchers_, same) >= options_.quotas.watches_per_session)
      status = QuotaExceeded("watches_per_session", options_.quotas.watches_per_session,
                             "watches of a session");
  }
  const std::shared_ptr<const Snapshot> snapshot = published();
  const uint64_t oldest = history_.empty() ? snapshot->revision() : history_.front().revision - 1;
  const bool other_epoch = !request.epoch().empty() && request.epoch() != epoch_;
  const bool too_old =
      request.has_from_revision() &&
      (request.from_revision() < oldest || request.from_revision() > snapshot->revision());
  if (status.ok() && (other_epoch || too_old) && !request.initial_snapshot())
    status = Error(Reason::kRevisionCompacted,
                   absl::StrCat("changes are kept from revision ", oldest, " of epoch ", epoch_),
                   {{"oldest", absl::StrCat(oldest)}, {"epoch", epoch_}});
  if (!status.ok()) {
    sink->End(status);
    return 0;
  }
  watcher->bookmark_at = clock_->Steady() + watcher->interval;
  v1::WatchFlagsResponse message;
  message.set_epoch(epoch_);
  message.set_revision(snapshot->revision());
  if (other_epoch || too_old) {
    message.mutable_reset()->set_reason(other_epoch ? "EPOCH_CHANGED" : "REVISION_COMPACTED");
    sink->Send(message);
  }
  if (request.initial_snapshot()) {
    for (const FlagInfo& info : Catalogue::Get().flags()) {
      if (!watcher->Wants(info.id) || info.access == FlagAccess::kAction) continue;
      Reading reading = snapshot->Read(info.id, std::nullopt);
      if (session->has_value()) {
        if (auto own = snapshot->ReadFor(info.id, std::nullopt, **session); own.ok())
          reading = *std::move(own);
      }
      v1::FlagReading* out = message.mutable_snapshot()->add_readings();
      *out = ShowReading(info.id, reading);
      PutDevices(*snapshot, info.id, out);
    }
    sink->Send(message);
    message.mutable_synced();
    sink->Send(message);
  } else if (request.has_from_revision()) {
    for (const Past& past : history_) {
      if (past.revision <= request.from_revision()) continue;
      message.set_revision(past.revision);
      message.mutable_batch()->Clear();
      message.mutable_batch()->set_cause(past.cause);
      for (const ValueChange& one : past.changes) {
        if (watcher->Wants(one.flag)) *message.mutable_batch()->add_changes() = node::ToProto(one);
      }
      if (message.batch().changes_size() > 0 || past.changes.empty()) sink->Send(message);
    }
  }
  watchers_[++last_watch_] = std::move(watcher);
  return last_watch_;
}

void Node::StopWatch(uint64_t watch) {
  Turn turn(this);
  watchers_.erase(watch);
}

absl::StatusOr<v1::ListDevicesResponse> Node::ListDevices(const Caller& caller,
                                                          const v1::ListDevicesRequest& request) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  ASSIGN_OR_RETURN(const Page page, PageOf(request.page_size(), request.page_token()));
  const std::vector<v1::Device> devices = workers_->Devices();
  v1::ListDevicesResponse response;
  for (size_t i = page.from; i < devices.size(); ++i) {
    if (static_cast<size_t>(response.devices_size()) == page.size) {
      response.set_next_page_token(PageToken(0, i));
      break;
    }
    *response.add_devices() = devices[i];
  }
  return response;
}

absl::StatusOr<v1::GetNodeResponse> Node::GetNode(const Caller& caller, const v1::GetNodeRequest&) {
  RETURN_IF_ERROR(Admit(caller, Act::kRead));
  v1::GetNodeResponse response;
  response.set_version(options_.version);
  response.set_epoch(epoch_);
  const std::shared_ptr<const Snapshot> snapshot = published();
  response.set_revision(snapshot->revision());
  *response.mutable_uptime() = backendd::ToProto(clock_->Steady() - started_);
  response.set_pid(getpid());
  response.set_socket(options_.socket);
  const NodeQuotas& quotas = options_.quotas;
  auto& limits = *response.mutable_limits();
  limits["sessions"] = quotas.sessions;
  limits["sessions_per_user"] = quotas.sessions_per_user;
  limits["leases"] = quotas.leases;
  limits["leases_per_session"] = quotas.leases_per_session;
  limits["entries_per_lease"] = quotas.entries_per_lease;
  limits["waiters_per_key"] = quotas.waiters_per_key;
  limits["watches_per_session"] = quotas.watches_per_session;
  limits["mutations_per_second"] = quotas.mutations_per_second;
  limits["mutation_burst"] = quotas.mutation_burst;
  response.add_notes("base values are kept in memory only: a restart forgets them");
  for (const std::string& note : options_.notes) response.add_notes(ValidUtf8(note));
  response.set_role(Str(RoleName(caller.role)));
  (*response.mutable_libraries())["protobuf"] =
      google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
  for (const auto& [name, version] : snapshot->facts().libraries)
    (*response.mutable_libraries())[name] = version;
  Turn turn(this);
  response.set_sessions(static_cast<int32_t>(sessions_.size()));
  response.set_leases(static_cast<int32_t>(leases_.size()));
  response.set_draining(draining_);
  return response;
}

}  // namespace backendd::node
