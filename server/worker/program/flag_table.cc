#include "server/worker/program/flag_table.h"

#include "absl/strings/str_cat.h"
#include "shared/convert/flag_value.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr int kBuiltIn = v1::LAYER_BUILT_IN;

}  // namespace

FlagTable::FlagTable() {
  const Catalogue& catalogue = Catalogue::Get();
  auto set = std::make_shared<FlagSet>();
  set->states_.resize(catalogue.size());
  set->numbers_.resize(catalogue.size());
  MutexLock lock(&mutex_);
  for (const FlagInfo& info : catalogue.flags())
    Set(info.id, {info.default_value.value_or(None{}), kBuiltIn}, set.get());
  common_ = std::move(set);
}

void FlagTable::Set(FlagId flag, FlagState state, FlagSet* set) {
  const std::pair<bool, FlagValue> value(state.layer > kBuiltIn, state.value);
  set->numbers_[flag] = numbers_.try_emplace(value, numbers_.size()).first->second;
  set->states_[flag] = std::move(state);
}

void FlagTable::Apply(const control::v1::FlagState& state, FlagSet* set) {
  const FlagId flag = static_cast<FlagId>(state.flag());
  if (state.flag() >= set->states_.size()) return;  // both processes have compared catalogues
  Set(flag, {FromProto(state.value()).value_or(None{}), state.layer()}, set);
  if (const auto node = TreeNodeOf(flag)) {
    set->tree_[static_cast<int>(*node)] = {PrecisionFrom(FromProto(state.entry()).value_or(None{})),
                                           state.written()};
  }
}

void FlagTable::Commit(const control::v1::Snapshot& snapshot) {
  MutexLock lock(&mutex_);
  if (snapshot.complete()) {
    private_.clear();
    leases_.clear();
  }
  if (snapshot.flags_size() > 0) {
    auto set = std::make_shared<FlagSet>(*common_);
    for (const control::v1::FlagState& state : snapshot.flags()) Apply(state, set.get());
    common_ = std::move(set);
    ++commits_;
  }
  for (const control::v1::SessionFlags& session : snapshot.sessions()) {
    const SessionId id(session.session_id());
    if (session.flags().empty()) {
      private_.erase(id);
    } else {
      private_[id] = {{session.flags().begin(), session.flags().end()}, nullptr, 0};
    }
  }
  for (uint64_t lease : snapshot.ended_leases()) leases_.erase(LeaseId(lease));
  for (const control::v1::LeaseToken& lease : snapshot.leases())
    leases_[LeaseId(lease.lease_id())] = {SessionId(lease.session_id()), lease.token()};
  epoch_ = snapshot.epoch();
  revision_ = snapshot.revision();
}

void FlagTable::Forget(SessionId session) {
  MutexLock lock(&mutex_);
  private_.erase(session);
}

uint64_t FlagTable::revision() const {
  MutexLock lock(&mutex_);
  return revision_;
}

std::string FlagTable::epoch() const {
  MutexLock lock(&mutex_);
  return epoch_;
}

PinnedFlags FlagTable::Pin(SessionId session) {
  MutexLock lock(&mutex_);
  const auto found = private_.find(session);
  if (found == private_.end()) return {revision_, common_};
  Private& own = found->second;
  if (own.set == nullptr || own.made_at != commits_) {
    auto set = std::make_shared<FlagSet>(*common_);
    for (const control::v1::FlagState& state : own.states) Apply(state, set.get());
    own.set = std::move(set);
    own.made_at = commits_;
  }
  return {revision_, own.set};
}

absl::Status FlagTable::CheckFence(SessionId session, LeaseId lease, uint64_t token) const {
  MutexLock lock(&mutex_);
  const auto found = leases_.find(lease);
  if (found != leases_.end() && found->second == std::make_pair(session, token))
    return absl::OkStatus();
  return Error(Reason::kLeaseStale, "the lease does not hold any more with that token",
               {{"lease", Prefix(lease)}, {"token", absl::StrCat(token)}});
}

absl::StatusOr<std::shared_ptr<const FlagSet>> FlagTable::WithCall(
    const FlagSet& flags, const google::protobuf::RepeatedPtrField<v1::CallFlag>& call) {
  const Catalogue& catalogue = Catalogue::Get();
  std::vector<std::pair<FlagId, FlagValue>> writes;
  for (const v1::CallFlag& flag : call) {
    ASSIGN_OR_RETURN(const FlagId id, catalogue.Lookup(View(flag.flag())));
    const FlagInfo& info = catalogue.info(id);
    if (!info.per_call)
      return Error(Reason::kScopeInvalid,
                   absl::StrCat("flag '", info.name, "' is not one of a single operation"),
                   {{"flag", info.name}});
    std::optional<FlagValue> given = FromProto(flag.value());
    if (!given.has_value())
      return Error(Reason::kFlagValueInvalid, absl::StrCat("flag '", info.name, "' has no value"),
                   {{"flag", info.name}, {"allowed", AllowedText(info)}});
    ASSIGN_OR_RETURN(FlagValue value, Normalise(info, *std::move(given), &flags.Get(id).value));
    if (IsAlias(id)) {
      for (auto& write : ExpandAlias(id, value)) writes.push_back(std::move(write));
    } else {
      writes.emplace_back(id, std::move(value));
    }
  }
  auto set = std::make_shared<FlagSet>(flags);
  MutexLock lock(&mutex_);
  bool tree = false;
  for (auto& [flag, value] : writes) {
    if (const auto node = TreeNodeOf(flag)) {
      set->tree_[static_cast<int>(*node)] = {PrecisionFrom(value), true};
      tree = true;
    }
    Set(flag, {std::move(value), v1::LAYER_CALL}, set.get());
  }
  for (int i = 0; tree && i < kTreeNodes; ++i) {
    const TreeNode node = static_cast<TreeNode>(i);
    const Walked walked = Walk(set->tree_, node);
    // What a written node decides has its layer.
    const int layer = walked.decided_by.has_value() ? set->states_[FlagOf(*walked.decided_by)].layer
                                                    : set->states_[FlagOf(node)].layer;
    Set(FlagOf(node), {ToValue(walked.value), layer}, set.get());
  }
  return std::shared_ptr<const FlagSet>(std::move(set));
}

FlagValue FlagTable::Value(FlagId flag) const {
  MutexLock lock(&mutex_);
  return common_->Get(flag).value;
}

}  // namespace backendd::worker
