#include "server/node/flags/flag_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/node/flags/check.h"
#include "server/node/flags/resolver.h"
#include "server/node/flags/snapshot_impl.h"

namespace backendd::node {
namespace {

// The legacy values to keep beside leaves that were written through legacy names. A leaf written
// through one has a value that only one word of that name writes.
std::vector<Entry> KeptBeside(absl::Span<const Entry> entries) {
  std::vector<Entry> kept;
  for (const Entry& entry : entries) {
    const auto keeper = entry.via.has_value() ? LegacyKeeper(*entry.via) : std::nullopt;
    if (!keeper.has_value()) continue;
    FlagValue value = entry.value == FlagValue("tf32");
    if (*keeper != *entry.via) {  // cuda.matmul.allow_tf32, kept as the precision's word
      value = entry.value == FlagValue("tf32") ? "high" : "highest";
    } else if (TreeNodeOf(entry.flag) == TreeNode::kMkldnnMatmul) {
      value = entry.value == FlagValue("bf16")   ? "medium"
              : entry.value == FlagValue("tf32") ? "high"
                                                 : "highest";
    } else if (TreeNodeOf(entry.flag) == TreeNode::kCudaMatmul) {
      continue;  // high and medium write it alike; the oneDNN leaf tells
    }
    const auto same = [&](const Entry& other) {
      return other.flag == *keeper && other.device == entry.device;
    };
    const auto other = std::find_if(kept.begin(), kept.end(), same);
    if (other == kept.end())
      kept.push_back({*keeper, entry.device, std::move(value), entry.via});
    else if (*keeper == *entry.via)
      other->value = std::move(value);  // the precision's own word says more
  }
  return kept;
}

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
    SetFacts(options_.facts, first.get());
    latest_ = std::move(first);
    facts_ = options_.facts;
    Put(options_.environment);
    (void)Apply("environment", true);
    latest_ = WithRevision(options_.first_revision - 1);
    std::vector<Violation> violations;
    for (LayerEntry& line : options_.file) {
      const RequestedEntry requested{
          Catalogue::Get().info(line.flag).name, line.device, line.value, line.source, {}};
      for (Entry& entry : CheckEntries(*latest_, {&requested, 1}, {}, true, &violations)) {
        LayerEntry made = line;
        made.flag = entry.flag;
        made.value = std::move(entry.value);
        made.via = entry.via;
        made.layer = Layer::kFile;
        Put({std::move(made)});
      }
    }
    if (!violations.empty()) return ErrorFrom(std::move(violations));
    (void)Apply("start", true);
    return absl::OkStatus();
  }

  // --- edits ---

  void Set(std::optional<SessionId> session, std::vector<Entry> entries, const Writer& writer) {
    NoteParents(entries, session);
    std::vector<Entry> kept = KeptBeside(entries);
    entries.insert(entries.end(), kept.begin(), kept.end());
    for (Entry& entry : entries) {
      auto owned = std::make_shared<OwnedEntry>();
      owned->entry = MakeLayerEntry(std::move(entry),
                                    session.has_value() ? Layer::kSession : Layer::kBase, writer);
      owned->entry.source = writer.source;
      if (session.has_value()) owned->session = *session;
      Replace(session, std::move(owned));
    }
  }

  void Unset(std::optional<SessionId> session, absl::Span<const Entry> entries) {
    const Layer layer = session.has_value() ? Layer::kSession : Layer::kBase;
    std::set<FlagId> keepers;
    for (const Entry& entry : entries) {
      Entries& list = Edit(session, entry.flag);
      for (auto at = list.begin(); at != list.end();) {
        const OwnedEntry& owned = **at;
        if (owned.entry.layer != layer || owned.lease || owned.entry.device != entry.device) {
          ++at;
          continue;
        }
        if (owned.entry.via.has_value()) {
          if (const auto keeper = LegacyKeeper(*owned.entry.via)) keepers.insert(*keeper);
        }
        at = list.erase(at);
        changed_ = true;
      }
      if (entry.via.has_value()) {
        if (const auto keeper = LegacyKeeper(*entry.via)) keepers.insert(*keeper);
      }
      // A leaf written over in its own name has left its legacy value behind.
      for (FlagId keeper : {FlagIdOf("float32_matmul_precision"), FlagIdOf("cudnn.allow_tf32")}) {
        for (FlagId target : AliasTargets(keeper)) {
          if (target == entry.flag) keepers.insert(keeper);
        }
      }
    }
    for (FlagId keeper : keepers) DropOrphanedKeeper(session, keeper, layer, entries);
  }

  void PutLease(const LeaseOwner& owner, std::vector<Entry> entries) {
    const std::optional<SessionId> session =
        owner.is_private ? std::optional(owner.session) : std::nullopt;
    NoteParents(entries, session);
    std::vector<Entry> kept = KeptBeside(entries);
    entries.insert(entries.end(), kept.begin(), kept.end());
    uint64_t order = 0;
    Entries before;
    Sweep();
    if (const LeaseRecord* record = RecordOf(owner.lease)) {
      order = record->order;
      before = TakeLease(*record);
    } else {
      order = ++orders_;
    }
    LeaseRecord record{owner.lease, session, order, {}};
    for (Entry& entry : entries) {
      record.flags.insert(entry.flag);
      auto owned = std::make_shared<OwnedEntry>();
      owned->entry = MakeLayerEntry(
          std::move(entry), owner.is_private ? Layer::kSession : Layer::kLease, owner.writer);
      owned->entry.source =
          absl::StrCat("lease ", Prefix(owner.lease), " of ", owner.writer.source);
      owned->lease = owner.lease;
      owned->session = owner.session;
      owned->priority = owner.priority;
      owned->order = order;
      for (const auto& old : before) {  // what an update does not touch stays as it is
        if (old->entry.flag == owned->entry.flag && old->entry.device == owned->entry.device &&
            old->entry.value == owned->entry.value)
          owned->entry.revision = old->entry.revision;
      }
      Edit(session, owned->entry.flag).push_back(std::move(owned));
    }
    lease_edits_[owner.lease] = std::move(record);
    changed_ = true;
  }

  // Thousands may end at once: their entries are swept out together.
  void DropLease(LeaseId lease) {
    const LeaseRecord* record = RecordOf(lease);
    if (record == nullptr) return;
    for (FlagId flag : record->flags) sweeps_.insert({record->session, flag});
    lease_edits_[lease] = std::nullopt;
    changed_ = true;
  }

  void DropSession(SessionId session) {
    const SessionState* state = StateOf(session);
    if (state == nullptr) return;
    for (const auto& [flag, entries] : state->entries) {
      for (const auto& owned : entries) {
        if (owned->lease) lease_edits_[owned->lease] = std::nullopt;
      }
    }
    session_edits_[session] = std::nullopt;
    changed_ = true;
  }

  void SetSemantics(SessionId session, bool compat) {
    SessionState& state = EditSession(session);
    if (state.compat == compat) return;
    state.compat = compat;
    changed_ = true;
  }

  void SetFacts(NodeFacts facts) {
    facts_ = std::move(facts);
    changed_ = true;
  }

  void Discard() {
    shared_edits_.clear();
    session_edits_.clear();
    lease_edits_.clear();
    sweeps_.clear();
    facts_.reset();
    parents_.clear();
    written_.clear();
    changed_ = false;
  }

  // --- one revision ---

  std::optional<Change> Apply(std::string cause, bool always) {
    if (!changed_ && !always) {
      Discard();
      return std::nullopt;
    }
    Sweep();
    auto next = std::make_shared<SnapshotImpl>(*latest_);
    next->revision_ = NextRevision();
    next->time_ = options_.clock->Wall();
    Change change;
    change.cause = std::move(cause);
    const std::set<FlagId> dirty = EditNext(next.get());
    for (FlagId flag : dirty) Recompute(flag, next.get(), &change);
    for (const auto& [flag, entries] : shared_edits_)
      NoteShadows(flag, next->EntriesOf(flag), &change);
    NoteSessionChanges(dirty, *next, &change);
    NoteKept(*next, &change);
    NoteDeterminism(dirty, *next, &change);
    for (auto& [lease, record] : lease_edits_) {
      if (record.has_value())
        leases_[lease] = *std::move(record);
      else
        leases_.erase(lease);
    }
    latest_ = next;
    change.snapshot = std::move(next);
    Discard();
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
  // What a lease has in the lists, so that dropping it looks at its own flags only.
  struct LeaseRecord {
    LeaseId lease;
    std::optional<SessionId> session;  // of private entries
    uint64_t order = 0;
    std::set<FlagId> flags;
  };

  uint64_t NextRevision() const { return latest_->revision_ + 1; }

  std::shared_ptr<const SnapshotImpl> WithRevision(uint64_t revision) const {
    auto same = std::make_shared<SnapshotImpl>(*latest_);
    same->revision_ = revision;
    return same;
  }

  static void SetFacts(NodeFacts facts, SnapshotImpl* snapshot) {
    snapshot->devices_ = std::make_shared<const std::vector<DeviceId>>(DevicesOf(facts));
    snapshot->facts_ = std::make_shared<const NodeFacts>(std::move(facts));
  }

  LayerEntry MakeLayerEntry(Entry entry, Layer layer, const Writer& writer) const {
    LayerEntry made;
    made.flag = entry.flag;
    made.layer = layer;
    made.device = std::move(entry.device);
    made.value = std::move(entry.value);
    made.via = entry.via;
    made.reason = writer.reason;
    made.revision = NextRevision();
    return made;
  }

  // Entries of the environment and the file, which are set once.
  void Put(std::vector<LayerEntry> lines) {
    std::vector<Entry> written;
    for (LayerEntry& line : lines) {
      line.revision = options_.first_revision;
      if (line.warning.empty() && line.via.has_value())
        written.push_back({line.flag, line.device, line.value, line.via});
      auto owned = std::make_shared<OwnedEntry>();
      owned->entry = line;
      Edit(std::nullopt, line.flag).push_back(std::move(owned));
    }
    for (Entry& kept : KeptBeside(written)) {
      auto owned = std::make_shared<OwnedEntry>();
      for (const LayerEntry& line : lines) {
        if (line.via == kept.via) owned->entry = line;
      }
      owned->entry.flag = kept.flag;
      owned->entry.value = std::move(kept.value);
      Edit(std::nullopt, kept.flag).push_back(std::move(owned));
    }
  }

  const SessionState* StateOf(SessionId session) const {
    const auto edited = session_edits_.find(session);
    if (edited == session_edits_.end()) return latest_->StateOf(session);
    return edited->second.has_value() ? &*edited->second : nullptr;
  }

  const LeaseRecord* RecordOf(LeaseId lease) const {
    if (const auto edited = lease_edits_.find(lease); edited != lease_edits_.end())
      return edited->second.has_value() ? &*edited->second : nullptr;
    const auto found = leases_.find(lease);
    return found == leases_.end() ? nullptr : &found->second;
  }

  SessionState& EditSession(SessionId session) {
    std::optional<SessionState>& edited = session_edits_[session];
    if (!edited.has_value()) {
      const auto* now = latest_->StateOf(session);
      edited = now == nullptr ? SessionState() : *now;
    }
    return *edited;
  }

  Entries& Edit(std::optional<SessionId> session, FlagId flag) {
    if (session.has_value()) return EditSession(*session).entries[flag];
    const auto edited = shared_edits_.find(flag);
    if (edited != shared_edits_.end()) return edited->second;
    return shared_edits_.emplace(flag, latest_->EntriesOf(flag)).first->second;
  }

  // Puts the entry in the place of the same writer's former one.
  void Replace(std::optional<SessionId> session, std::shared_ptr<const OwnedEntry> owned) {
    Entries& list = Edit(session, owned->entry.flag);
    for (auto& old : list) {
      if (old->entry.layer != owned->entry.layer || old->lease ||
          old->entry.device != owned->entry.device)
        continue;
      if (old->entry.value == owned->entry.value && old->entry.via == owned->entry.via) return;
      old = std::move(owned);
      changed_ = true;
      return;
    }
    list.push_back(std::move(owned));
    changed_ = true;
  }

  // The legacy value goes with the last leaf that was written through its name.
  void DropOrphanedKeeper(std::optional<SessionId> session, FlagId keeper, Layer layer,
                          absl::Span<const Entry> unset) {
    for (const Entry& entry : unset) {
      const auto here = [&](const std::shared_ptr<const OwnedEntry>& owned) {
        return owned->entry.layer == layer && !owned->lease && owned->entry.device == entry.device;
      };
      for (FlagId target : AliasTargets(keeper)) {
        for (const auto& owned : Edit(session, target)) {
          if (here(owned) && owned->entry.via.has_value() &&
              LegacyKeeper(*owned->entry.via) == keeper)
            return;
        }
      }
      Entries& list = Edit(session, keeper);
      list.erase(std::remove_if(list.begin(), list.end(), here), list.end());
    }
  }

  Entries TakeLease(const LeaseRecord& record) {
    Entries taken;
    for (FlagId flag : record.flags) {
      Entries& list = Edit(record.session, flag);
      const auto kept = std::stable_partition(list.begin(), list.end(), [&](const auto& owned) {
        return owned->lease != record.lease;
      });
      taken.insert(taken.end(), kept, list.end());
      list.erase(kept, list.end());
    }
    return taken;
  }

  void Sweep() {
    for (const auto& [session, flag] : sweeps_) {
      if (session.has_value() && StateOf(*session) == nullptr) continue;  // dropped as a whole
      Entries& list = Edit(session, flag);
      const auto dropped = [&](const auto& owned) {
        return owned->lease && RecordOf(owned->lease) == nullptr;
      };
      list.erase(std::remove_if(list.begin(), list.end(), dropped), list.end());
    }
    sweeps_.clear();
  }

  // Parents of the fp32 tree that a request writes, for Change.kept.
  void NoteParents(absl::Span<const Entry> entries, std::optional<SessionId> session) {
    for (const Entry& entry : entries) {
      if (!TreeNodeOf(entry.flag).has_value()) continue;
      parents_.insert({entry.flag, session.value_or(SessionId())});
      written_.insert(entry.flag);
    }
  }

  std::set<FlagId> EditNext(SnapshotImpl* next) {
    std::set<FlagId> dirty;
    for (auto& [flag, entries] : shared_edits_) {
      Cell cell = *next->cells_[flag];
      cell.entries = std::make_shared<const Entries>(std::move(entries));
      next->cells_[flag] = std::make_shared<const Cell>(std::move(cell));
      dirty.insert(DependantsOf(flag).begin(), DependantsOf(flag).end());
    }
    for (auto& [session, state] : session_edits_) {
      if (state.has_value()) {
        for (auto at = state->entries.begin(); at != state->entries.end();)
          at = at->second.empty() ? state->entries.erase(at) : std::next(at);
      }
      if (state.has_value() && (state->compat || !state->entries.empty()))
        next->sessions_[session] = std::make_shared<const SessionState>(*state);
      else
        next->sessions_.erase(session);
    }
    if (facts_.has_value()) {
      SetFacts(*std::move(facts_), next);
      for (FlagId flag = 0; flag < Catalogue::Get().size(); ++flag) dirty.insert(flag);
    }
    return dirty;
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
    std::set<SessionId> sessions;
    for (const auto& [session, state] : next.sessions_) sessions.insert(session);
    for (const auto& [session, state] : session_edits_) sessions.insert(session);
    for (SessionId session : sessions) {
      const SessionState* before = latest_->StateOf(session);
      const SessionState* after = next.StateOf(session);
      std::set<FlagId> own;
      for (const SessionState* state : {before, after}) {
        if (state == nullptr) continue;
        for (const auto& [flag, entries] : state->entries)
          own.insert(DependantsOf(flag).begin(), DependantsOf(flag).end());
      }
      const bool edited = session_edits_.count(session) > 0;
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
    for (const auto& [parent, session] : parents_) {
      for (FlagId flag : DependantsOf(parent)) {
        if (!TreeNodeOf(flag).has_value() || written_.count(flag) > 0) continue;
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
  std::map<LeaseId, LeaseRecord> leases_;
  uint64_t orders_ = 0;

  // Gathered for Apply.
  std::map<FlagId, Entries> shared_edits_;
  std::map<SessionId, std::optional<SessionState>> session_edits_;  // nullopt: dropped
  std::map<LeaseId, std::optional<LeaseRecord>> lease_edits_;       // nullopt: dropped
  std::set<std::pair<std::optional<SessionId>, FlagId>> sweeps_;    // where dropped leases were
  std::optional<NodeFacts> facts_;
  std::set<std::pair<FlagId, SessionId>> parents_;
  std::set<FlagId> written_;
  bool changed_ = false;
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
  impl_->Set(std::nullopt, std::move(entries), writer);
}
void FlagStore::UnsetBase(absl::Span<const Entry> entries) { impl_->Unset(std::nullopt, entries); }
void FlagStore::SetBare(SessionId session, std::vector<Entry> entries, const Writer& writer) {
  impl_->Set(session, std::move(entries), writer);
}
void FlagStore::UnsetBare(SessionId session, absl::Span<const Entry> entries) {
  impl_->Unset(session, entries);
}
void FlagStore::PutLease(const LeaseOwner& owner, std::vector<Entry> entries) {
  impl_->PutLease(owner, std::move(entries));
}
void FlagStore::DropLease(LeaseId lease) { impl_->DropLease(lease); }
void FlagStore::DropSession(SessionId session) { impl_->DropSession(session); }
void FlagStore::SetSemantics(SessionId session, bool compat) {
  impl_->SetSemantics(session, compat);
}
void FlagStore::SetFacts(NodeFacts facts) { impl_->SetFacts(std::move(facts)); }
std::optional<Change> FlagStore::Apply(std::string cause, bool always) {
  return impl_->Apply(std::move(cause), always);
}
void FlagStore::Discard() { impl_->Discard(); }
std::shared_ptr<const Snapshot> FlagStore::latest() const { return impl_->latest(); }
std::optional<LeaseId> FlagStore::Covering(const Entry& entry, int32_t priority,
                                           SessionId session) const {
  return impl_->Covering(entry, priority, session);
}

}  // namespace backendd::node
