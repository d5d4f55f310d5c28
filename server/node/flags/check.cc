#include "server/node/flags/check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/flags/precision.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

struct Ids {
  FlagId operations = FlagIdOf("python_native.disabled_operations");
  FlagId dispatch_keys = FlagIdOf("python_native.disabled_dispatch_keys");
  FlagId einsum_enabled = FlagIdOf("opt_einsum.enabled");
  FlagId einsum_strategy = FlagIdOf("opt_einsum.strategy");
  FlagId blas = FlagIdOf("cuda.preferred_blas_library");
  FlagId blas_workspace = FlagIdOf("cuda.blas_workspace_size");
  FlagId cublas_workspace = FlagIdOf("cuda.cublas_workspace_size");
  FlagId cublaslt_workspace = FlagIdOf("cuda.cublaslt_workspace_size");
  FlagId deterministic = FlagIdOf("deterministic_algorithms");
  FlagId warn_only = FlagIdOf("deterministic_algorithms.warn_only");
};
const Ids& Id() {
  static const Ids* ids = new Ids();
  return *ids;
}

class Checker {
 public:
  Checker(const Snapshot& now, absl::Span<const RequestedEntry> requested,
          std::optional<SessionId> session, bool writing, std::vector<Violation>* violations)
      : now_(now),
        requested_(requested),
        session_(session),
        writing_(writing),
        violations_(violations) {}

  std::vector<Entry> Check() {
    for (const RequestedEntry& requested : requested_) CheckOne(requested);
    if (writing_) CheckPairs();
    return std::move(entries_);
  }

 private:
  void Violate(const RequestedEntry& requested, absl::string_view part, Reason reason,
               std::string sentence) {
    violations_->push_back({absl::StrCat(requested.field, part), reason, std::move(sentence)});
  }
  void Violate(const RequestedEntry& requested, absl::string_view part,
               const absl::Status& status) {
    Violate(requested, part, ReasonOf(status).value_or(Reason::kInternal), Str(status.message()));
  }

  Reading Now(FlagId flag, const std::optional<DeviceId>& device) const {
    if (!session_.has_value()) return now_.Read(flag, device);
    const auto reading = now_.ReadFor(flag, device, *session_);
    return reading.ok() ? *reading : now_.Read(flag, device);  // a mixed legacy read
  }

  bool PlaceIsRight(const RequestedEntry& requested, const FlagInfo& flag) {
    const FlagScope scope = session_.has_value()           ? FlagScope::kSession
                            : requested.device.has_value() ? FlagScope::kDevice
                                                           : FlagScope::kNode;
    if (!flag.HasScope(scope) || (session_.has_value() && requested.device.has_value())) {
      constexpr absl::string_view kNames[] = {"", "node", "device", "session"};
      Violate(requested, ".scope", Reason::kScopeInvalid,
              absl::StrCat("flag '", flag.name, "' has no values at ",
                           kNames[static_cast<int>(scope)], " scope"));
      return false;
    }
    const std::vector<DeviceId>& devices = now_.devices();
    if (requested.device.has_value() &&
        std::find(devices.begin(), devices.end(), *requested.device) == devices.end()) {
      Violate(requested, ".scope.device", Reason::kDeviceUnknown,
              absl::StrCat("this node has no device '", *requested.device, "'"));
      return false;
    }
    return true;
  }

  void CheckOne(const RequestedEntry& requested) {
    const auto id = Catalogue::Get().Lookup(requested.flag);
    if (!id.ok()) return Violate(requested, ".flag", id.status());
    const FlagInfo& flag = Catalogue::Get().info(*id);
    if (!flag.writable())
      return Violate(requested, ".flag", Reason::kFlagReadOnly,
                     absl::StrCat("flag '", flag.name, "' can only be read"));
    if (!PlaceIsRight(requested, flag)) return;
    if (requested.if_mod_revision.has_value() &&
        Now(*id, requested.device).since != *requested.if_mod_revision)
      return Violate(requested, ".if_mod_revision", Reason::kRevisionStale,
                     absl::StrFormat("flag '%s' changed at revision %d, not %d", flag.name,
                                     Now(*id, requested.device).since, *requested.if_mod_revision));
    if (!writing_) return Take(requested, *id, None{});
    const std::string unavailable = UnavailableBecause(*id, requested.device, now_.facts());
    // Without a planner enabled is false: writing that asks for nothing.
    const bool is_so = *id == Id().einsum_enabled && requested.value == FlagValue(false);
    if (!unavailable.empty() && !is_so)
      return Violate(requested, ".flag", Reason::kFlagUnavailable,
                     absl::StrCat("flag '", flag.name, "' is unavailable: ", unavailable));
    if (!requested.value.has_value())
      return Violate(
          requested, ".value", Reason::kFlagValueInvalid,
          absl::StrCat("flag '", flag.name, "' needs a value; allowed: ", AllowedText(flag)));
    const Reading now = Now(*id, requested.device);
    auto value = Normalise(flag, *requested.value, now.value.has_value() ? &*now.value : nullptr);
    if (!value.ok()) return Violate(requested, ".value", value.status());
    if (flag.combine == FlagCombine::kUnion && !AreRegistered(requested, *id, *value)) return;
    Take(requested, *id, *std::move(value));
  }

  // Names that no kernel provider registers are refused.
  bool AreRegistered(const RequestedEntry& requested, FlagId flag, const FlagValue& value) {
    std::set<std::string> known;
    for (const auto& [dsl, provider] : now_.facts().providers) {
      for (const auto& [operation, keys] : provider.operations) {
        if (flag == Id().operations) known.insert(operation);
        if (flag == Id().dispatch_keys) known.insert(keys.begin(), keys.end());
      }
    }
    const std::vector<absl::string_view> names(known.begin(), known.end());
    bool all = true;
    for (const std::string& name : std::get<TextList>(value)) {
      if (known.count(name) > 0) continue;
      all = false;
      const auto near = NearNames(name, names);
      Violate(
          requested, ".value", Reason::kFlagValueInvalid,
          absl::StrCat("flag '", requested.flag, "' does not accept '", name,
                       "': no kernel provider registers it", near.empty() ? "" : "; did you mean ",
                       absl::StrJoin(near, ", "), near.empty() ? "" : "?"));
    }
    return all;
  }

  // Notes the entry, or the leaves that an alias stands for.
  void Take(const RequestedEntry& requested, FlagId flag, FlagValue value) {
    if (flag == Id().blas_workspace) {
      const std::optional<FlagId> target = BlasWorkspace(requested, value);
      if (target.has_value()) Put(requested, {*target, requested.device, std::move(value), flag});
      return;
    }
    if (!IsAlias(flag)) return Put(requested, {flag, requested.device, std::move(value), {}});
    if (!writing_) {
      for (FlagId target : AliasTargets(flag))
        Put(requested, {target, requested.device, None{}, flag});
    }
    for (auto& [target, written] : ExpandAlias(flag, value))
      Put(requested, {target, requested.device, std::move(written), flag});
  }

  // The flag of the library preferred in the result of this request.
  std::optional<FlagId> BlasWorkspace(const RequestedEntry& requested, const FlagValue& value) {
    FlagValue library = *Now(Id().blas, requested.device).value;
    const FlagInfo& blas = Catalogue::Get().info(Id().blas);
    for (const RequestedEntry& other : requested_) {
      if (other.flag != blas.name || !other.value.has_value()) continue;
      if (auto asked = Normalise(blas, *other.value); asked.ok()) library = *asked;
    }
    if (library == FlagValue("ck")) {
      Violate(requested, ".flag", Reason::kFlagUnavailable,
              absl::StrCat("flag '", requested.flag,
                           "' is unavailable: ck, the preferred library, uses no workspace"));
      return std::nullopt;
    }
    if (library != FlagValue("cublaslt")) return Id().cublas_workspace;
    const FlagInfo& lt = Catalogue::Get().info(Id().cublaslt_workspace);
    if (writing_ && !Normalise(lt, value).ok()) {
      Violate(requested, ".value", Normalise(lt, value).status());
      return std::nullopt;
    }
    return lt.id;
  }

  void Put(const RequestedEntry& requested, Entry entry) {
    for (const Entry& other : entries_) {
      if (other.flag != entry.flag || other.device != entry.device) continue;
      if (other.value != entry.value)
        Violate(requested, ".value", Reason::kFlagValueInvalid,
                absl::StrFormat("flag '%s' contradicts another entry of the request: %s is asked "
                                "to be %s and %s",
                                requested.flag, Catalogue::Get().info(entry.flag).name,
                                ToText(other.value), ToText(entry.value)));
      return;
    }
    origins_.push_back(&requested);
    entries_.push_back(std::move(entry));
  }

  // The value that `flag` has in the result of the request.
  FlagValue InResult(FlagId flag, const std::optional<DeviceId>& device) const {
    for (const Entry& entry : entries_) {
      if (entry.flag == flag && (entry.device == device || !entry.device.has_value()))
        return entry.value;
    }
    const Reading now = Now(flag, device);
    return now.requested.has_value() ? *now.requested : now.value.value_or(None{});
  }

  void CheckPairs() {
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (entry.flag == Id().einsum_strategy &&
          InResult(Id().einsum_enabled, entry.device) != FlagValue(true))
        Violate(*origins_[i], ".value", Reason::kFlagValueInvalid,
                "flag 'opt_einsum.strategy' needs opt_einsum.enabled=true");
      if (entry.flag != Id().deterministic || entry.value != FlagValue(true) ||
          InResult(Id().warn_only, entry.device) == FlagValue(true))
        continue;
      const std::string why =
          NondeterministicBecause(now_, InResult(Id().cublas_workspace, entry.device));
      if (!why.empty()) Violate(*origins_[i], ".value", Reason::kFlagValueInvalid, why);
    }
  }

  const Snapshot& now_;
  const absl::Span<const RequestedEntry> requested_;
  const std::optional<SessionId> session_;
  const bool writing_;
  std::vector<Violation>* violations_;
  std::vector<Entry> entries_;
  std::vector<const RequestedEntry*> origins_;  // of entries_
};

}  // namespace

std::vector<Entry> CheckEntries(const Snapshot& now, absl::Span<const RequestedEntry> requested,
                                std::optional<SessionId> session, bool writing,
                                std::vector<Violation>* violations) {
  return Checker(now, requested, session, writing, violations).Check();
}

std::string NondeterministicBecause(const Snapshot& now, const FlagValue& workspace_text) {
  if (now.facts().cuda_devices.empty() || workspace_text == FlagValue(":4096:8") ||
      workspace_text == FlagValue(":16:8"))
    return "";
  return absl::StrCat(
      "cuBLAS is deterministic only with cuda.cublas_workspace_size at ':4096:8' "
      "or ':16:8', not ",
      ToText(workspace_text));
}

}  // namespace backendd::node
