#include "server/node/flags/edits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

}  // namespace

void Edits::Put(std::vector<LayerEntry> lines) {
  std::vector<Entry> written;
  for (LayerEntry& line : lines) {
    line.revision = NextRevision();
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

void Edits::Set(std::optional<SessionId> session, std::vector<Entry> entries,
                const Writer& writer) {
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

void Edits::Unset(std::optional<SessionId> session, absl::Span<const Entry> entries) {
  const Layer layer = session.has_value() ? Layer::kSession : Layer::kBase;
  std::set<FlagId> keepers;
  for (const Entry& entry : entries) {
    Entries& list = Edit(session, entry.flag);
    const auto gone = std::remove_if(list.begin(), list.end(), [&](const auto& owned) {
      return owned->entry.layer == layer && !owned->lease && owned->entry.device == entry.device;
    });
    changed_ = changed_ || gone != list.end();
    list.erase(gone, list.end());
    for (FlagId keeper : {FlagIdOf("float32_matmul_precision"), FlagIdOf("cudnn.allow_tf32")}) {
      for (FlagId target : AliasTargets(keeper)) {
        if (target == entry.flag) keepers.insert(keeper);
      }
    }
  }
  for (FlagId keeper : keepers) DropOrphanedKeeper(session, keeper, layer, entries);
}

void Edits::PutLease(const LeaseOwner& owner, std::vector<Entry> entries) {
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
    owned->entry = MakeLayerEntry(std::move(entry),
                                  owner.is_private ? Layer::kSession : Layer::kLease, owner.writer);
    owned->entry.source = absl::StrCat("lease ", Prefix(owner.lease), " of ", owner.writer.source);
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
void Edits::DropLease(LeaseId lease) {
  const LeaseRecord* record = RecordOf(lease);
  if (record == nullptr) return;
  for (FlagId flag : record->flags) sweeps_.insert({record->session, flag});
  lease_edits_[lease] = std::nullopt;
  changed_ = true;
}

void Edits::DropSession(SessionId session) {
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

void Edits::SetSemantics(SessionId session, bool compat) {
  SessionState& state = EditSession(session);
  if (state.compat == compat) return;
  state.compat = compat;
  changed_ = true;
}

void Edits::SetFacts(NodeFacts facts) {
  facts_ = std::move(facts);
  changed_ = true;
}

void Edits::Discard() {
  shared_edits_.clear();
  session_edits_.clear();
  lease_edits_.clear();
  sweeps_.clear();
  facts_.reset();
  written_in_tree_.clear();
  changed_ = false;
}

LayerEntry Edits::MakeLayerEntry(Entry entry, Layer layer, const Writer& writer) const {
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

const SessionState* Edits::StateOf(SessionId session) const {
  const auto edited = session_edits_.find(session);
  if (edited == session_edits_.end()) return latest_->StateOf(session);
  return edited->second.has_value() ? &*edited->second : nullptr;
}

const Edits::LeaseRecord* Edits::RecordOf(LeaseId lease) const {
  if (const auto edited = lease_edits_.find(lease); edited != lease_edits_.end())
    return edited->second.has_value() ? &*edited->second : nullptr;
  const auto found = leases_.find(lease);
  return found == leases_.end() ? nullptr : &found->second;
}

SessionState& Edits::EditSession(SessionId session) {
  std::optional<SessionState>& edited = session_edits_[session];
  if (!edited.has_value()) {
    const auto* now = latest_->StateOf(session);
    edited = now == nullptr ? SessionState() : *now;
  }
  return *edited;
}

Entries& Edits::Edit(std::optional<SessionId> session, FlagId flag) {
  if (session.has_value()) return EditSession(*session).entries[flag];
  const auto edited = shared_edits_.find(flag);
  if (edited != shared_edits_.end()) return edited->second;
  return shared_edits_.emplace(flag, latest_->EntriesOf(flag)).first->second;
}

// Puts the entry in the place of the same writer's former one.
void Edits::Replace(std::optional<SessionId> session, std::shared_ptr<const OwnedEntry> owned) {
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
void Edits::DropOrphanedKeeper(std::optional<SessionId> session, FlagId keeper, Layer layer,
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

Entries Edits::TakeLease(const LeaseRecord& record) {
  Entries taken;
  for (FlagId flag : record.flags) {
    Entries& list = Edit(record.session, flag);
    const auto kept = std::stable_partition(
        list.begin(), list.end(), [&](const auto& owned) { return owned->lease != record.lease; });
    taken.insert(taken.end(), kept, list.end());
    list.erase(kept, list.end());
  }
  return taken;
}

void Edits::Sweep() {
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
void Edits::NoteParents(absl::Span<const Entry> entries, std::optional<SessionId> session) {
  for (const Entry& entry : entries) {
    if (!TreeNodeOf(entry.flag).has_value()) continue;
    written_in_tree_.insert({entry.flag, session.value_or(SessionId())});
  }
}

std::set<FlagId> Edits::PutInto(SnapshotImpl* next) {
  Sweep();
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
    next->SetFacts(*std::move(facts_));
    for (FlagId flag = 0; flag < Catalogue::Get().size(); ++flag) dirty.insert(flag);
  }
  return dirty;
}

std::set<SessionId> Edits::Sessions() const {
  std::set<SessionId> sessions;
  for (const auto& [session, state] : session_edits_) sessions.insert(session);
  return sessions;
}

void Edits::Done() {
  for (auto& [lease, record] : lease_edits_) {
    if (record.has_value())
      leases_[lease] = *std::move(record);
    else
      leases_.erase(lease);
  }
  Discard();
}

}  // namespace backendd::node
