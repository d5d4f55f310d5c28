#include "server/node/flags/flag_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "server/node/flags/check.h"
#include "server/node/flags/edits.h"
#include "server/node/flags/resolver.h"
#include "server/node/flags/snapshot_impl.h"

namespace backendd::node {
namespace {

// The highest lease entry of exactly this place, as others' entries there are covered by it.
const OwnedEntry* TopLease(const Entries& entries, const std::optional<DeviceId>& place) {
  const OwnedEntry* top = nullptr;
  for (const auto& owned : entries) {
    if (owned->entry.layer != Layer::kLease || owned->entry.device != place) continue;
    if (top == nullptr || Outranks(*owned, *top)) top = owned.get();
  }
  return top;
}

bool HasLease(const Entries& entries, const OwnedEntry& like) {
  return std::any_of(entries.begin(), entries.end(), [&](const auto& owned) {
    return owned->lease == like.lease && owned->entry.device == like.entry.device;
  });
}

}  // namespace

class FlagStore::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {
    if (options_.clock == nullptr) options_.clock = &system_clock_;
  }

  absl::Status Start() {
    auto first = std::make_shared<SnapshotImpl>();
    first->revision_ = options_.first_revision - 1;
    first->epoch_ = options_.epoch;
    const auto none = std::make_shared<const Entries>();
    for (FlagId flag = 0; flag < Catalogue::Get().size(); ++flag)
      first->cells_.push_back(std::make_shared<const Cell>(Cell{none, {}, {}}));
    first->SetFacts(options_.facts);
    latest_ = std::move(first);
    // The file is checked against what stands below it; together they are the first revision.
    edits_.SetFacts(options_.facts);
    edits_.Put(options_.environment);
    (void)Apply("environment", true);
    latest_ = WithRevision(options_.first_revision - 1);
    std::vector<Violation> violations;
    for (LayerEntry& line : options_.file) {
      const RequestedEntry requested{
          Catalogue::Get().info(line.flag).name, line.device, line.value, line.source, {}};
      std::vector<LayerEntry> made;
      for (Entry& entry : CheckEntries(*latest_, {&requested, 1}, {}, true, &violations)) {
        made.push_back(line);
        made.back().flag = entry.flag;
        made.back().value = std::move(entry.value);
        made.back().via = entry.via;
        made.back().layer = Layer::kFile;
      }
      edits_.Put(std::move(made));
    }
    if (!violations.empty()) return ErrorFrom(std::move(violations));
    (void)Apply("start", true);
    return absl::OkStatus();
  }

  Edits& edits() { return edits_; }

  std::optional<Change> Apply(std::string cause, bool always) {
    if (!edits_.changed() && !always) {
      edits_.Discard();
      return std::nullopt;
    }
    auto next = std::make_shared<SnapshotImpl>(*latest_);
    next->revision_ = latest_->revision_ + 1;
    next->time_ = options_.clock->Wall();
    Change change;
    change.cause = std::move(cause);
    const std::set<FlagId> dirty = edits_.PutInto(next.get());
    for (FlagId flag : dirty) Recompute(flag, next.get(), &change);
    for (const auto& [flag, entries] : edits_.shared())
      NoteShadows(flag, next->EntriesOf(flag), &change);
    NoteSessionChanges(dirty, *next, &change);
    NoteKept(*next, &change);
    NoteDeterminism(dirty, *next, &change);
    latest_ = next;
    change.snapshot = std::move(next);
    edits_.Done();
    return change;
  }

  const std::shared_ptr<const SnapshotImpl>& latest() const { return latest_; }

  std::optional<LeaseId> Covering(const Entry& entry, int32_t priority, SessionId session) const {
    if (Catalogue::Get().info(entry.flag).combine != FlagCombine::kHighest) return std::nullopt;
    const OwnedEntry* covering = nullptr;
    for (const auto& owned : latest_->EntriesOf(entry.flag)) {
      if (owned->entry.layer != Layer::kLease || owned->session == session) continue;
      const bool narrower = !entry.device.has_value() && owned->entry.device.has_value();
      const bool above = owned->entry.device == entry.device && owned->priority > priority;
      if ((narrower || above) && (covering == nullptr || Outranks(*owned, *covering)))
        covering = owned.get();
    }
    return covering == nullptr ? std::nullopt : std::optional(covering->lease);
  }

 private:
  std::shared_ptr<const SnapshotImpl> WithRevision(uint64_t revision) const {
    auto same = std::make_shared<SnapshotImpl>(*latest_);
    same->revision_ = revision;
    return same;
  }

  // `since` moves only with the value.
  Reading Renewed(FlagId flag, const std::optional<DeviceId>& device, SnapshotImpl* next,
                  Reading* before) const {
    *before = latest_->Read(flag, device);
    Reading now = Resolve(flag, next->ViewOf(device, nullptr));
    const bool first = next->revision_ == options_.first_revision;
    now.since = now.value == before->value && !first ? before->since : next->revision_;
    return now;
  }

  void Recompute(FlagId flag, SnapshotImpl* next, Change* change) const {
    const Cell& old = *latest_->cells_[flag];
    Cell cell{next->cells_[flag]->entries, {}, {}};
    Reading before;
    cell.node = Renewed(flag, std::nullopt, next, &before);
    if (cell.node.value != before.value)
      change->changes.push_back({flag, std::nullopt, before.value, cell.node.value});
    for (const DeviceId& device : *next->devices_) {
      Reading now = Renewed(flag, device, next, &before);
      const bool differs = !SameReading(now, cell.node);
      if ((differs || old.devices.count(device) > 0) && now.value != before.value)
        change->changes.push_back({flag, device, before.value, now.value});
      if (differs) cell.devices.emplace(device, std::move(now));
    }
    next->cells_[flag] = std::make_shared<const Cell>(std::move(cell));
  }

  void NoteShadows(FlagId flag, const Entries& now, Change* change) const {
    if (IsAlias(flag) || Catalogue::Get().info(flag).combine != FlagCombine::kHighest) return;
    const Entries& before = latest_->EntriesOf(flag);
    std::set<std::optional<DeviceId>> places = {std::nullopt};
    for (const Entries* entries : {&before, &now}) {
      for (const auto& owned : *entries) {
        if (owned->entry.device.has_value()) places.insert(owned->entry.device);
      }
    }
    for (const auto& place : places) {
      const OwnedEntry* old_top = TopLease(before, place);
      const OwnedEntry* new_top = TopLease(now, place);
      if (old_top == nullptr || new_top == nullptr || old_top->lease == new_top->lease) continue;
      if (HasLease(now, *old_top))
        change->shadows.push_back({old_top->lease, flag, new_top->lease});
      if (HasLease(before, *new_top))
        change->shadows.push_back({new_top->lease, flag, std::nullopt});
    }
  }

  // Readings that are a session's own before or after, and moved.
  void NoteSessionChanges(const std::set<FlagId>& dirty, const SnapshotImpl& next,
                          Change* change) const {
    std::set<SessionId> sessions = edits_.Sessions();
    for (const auto& [session, state] : next.sessions_) sessions.insert(session);
    for (SessionId session : sessions) {
      const SessionState* before = latest_->StateOf(session);
      const SessionState* after = next.StateOf(session);
      std::set<FlagId> own;
      for (const SessionState* state : {before, after}) {
        if (state == nullptr) continue;
        for (const auto& [flag, entries] : state->entries)
          own.insert(DependantsOf(flag).begin(), DependantsOf(flag).end());
      }
      const bool edited = edits_.Touched(session);
      for (FlagId flag : own) {
        if (!edited && dirty.count(flag) == 0) continue;
        const Reading was = latest_->ReadPrivate(flag, std::nullopt, before);
        const Reading is = next.ReadPrivate(flag, std::nullopt, after);
        const bool is_own = was.value != latest_->Read(flag, std::nullopt).value ||
                            is.value != next.Read(flag, std::nullopt).value;
        if (is_own && was.value != is.value)
          change->session_changes[session].push_back({flag, std::nullopt, was.value, is.value});
      }
    }
  }

  // Below a parent that was written: whoever has a word of its own and was not itself written.
  void NoteKept(const SnapshotImpl& next, Change* change) const {
    std::set<FlagId> kept;
    const auto& written = edits_.written_in_tree();
    for (const auto& [parent, session] : written) {
      for (FlagId flag : DependantsOf(parent)) {
        if (!TreeNodeOf(flag).has_value() || written.count({flag, session}) > 0) continue;
        const Reading reading =
            next.ReadPrivate(flag, std::nullopt, session ? next.StateOf(session) : nullptr);
        if (reading.written && reading.entry != FlagValue(None{})) kept.insert(flag);
      }
    }
    change->kept.assign(kept.begin(), kept.end());
  }

  static void NoteDeterminism(const std::set<FlagId>& dirty, const SnapshotImpl& next,
                              Change* change) {
    static const FlagId deterministic = FlagIdOf("deterministic_algorithms");
    const Reading& on = next.Read(deterministic, std::nullopt);
    if (dirty.count(deterministic) == 0 || on.value != FlagValue(true)) return;
    const Reading& text = next.Read(FlagIdOf("cuda.cublas_workspace_size"), std::nullopt);
    std::string why = NondeterministicBecause(
        next, text.requested.value_or(text.value.value_or(FlagValue(None{}))));
    if (!why.empty()) change->warnings.push_back(std::move(why));
  }

  Options options_;
  SystemClock system_clock_;
  std::shared_ptr<const SnapshotImpl> latest_;
  Edits edits_{latest_};
};

FlagStore::FlagStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FlagStore::~FlagStore() = default;

absl::StatusOr<std::unique_ptr<FlagStore>> FlagStore::Create(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<FlagStore>(new FlagStore(std::move(impl)));
}

std::vector<Entry> FlagStore::Check(absl::Span<const RequestedEntry> requested,
                                    std::optional<SessionId> session, bool writing,
                                    std::vector<Violation>* violations) const {
  return CheckEntries(*impl_->latest(), requested, session, writing, violations);
}
void FlagStore::SetBase(std::vector<Entry> entries, const Writer& writer) {
  impl_->edits().Set(std::nullopt, std::move(entries), writer);
}
void FlagStore::UnsetBase(absl::Span<const Entry> entries) {
  impl_->edits().Unset(std::nullopt, entries);
}
void FlagStore::SetBare(SessionId session, std::vector<Entry> entries, const Writer& writer) {
  impl_->edits().Set(session, std::move(entries), writer);
}
void FlagStore::UnsetBare(SessionId session, absl::Span<const Entry> entries) {
  impl_->edits().Unset(session, entries);
}
void FlagStore::PutLease(const LeaseOwner& owner, std::vector<Entry> entries) {
  impl_->edits().PutLease(owner, std::move(entries));
}
void FlagStore::DropLease(LeaseId lease) { impl_->edits().DropLease(lease); }
void FlagStore::DropSession(SessionId session) { impl_->edits().DropSession(session); }
void FlagStore::SetSemantics(SessionId session, bool compat) {
  impl_->edits().SetSemantics(session, compat);
}
void FlagStore::SetFacts(NodeFacts facts) { impl_->edits().SetFacts(std::move(facts)); }
std::optional<Change> FlagStore::Apply(std::string cause, bool always) {
  return impl_->Apply(std::move(cause), always);
}
void FlagStore::Discard() { impl_->edits().Discard(); }
std::shared_ptr<const Snapshot> FlagStore::latest() const { return impl_->latest(); }
std::optional<LeaseId> FlagStore::Covering(const Entry& entry, int32_t priority,
                                           SessionId session) const {
  return impl_->Covering(entry, priority, session);
}

}  // namespace backendd::node
