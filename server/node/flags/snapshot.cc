#include <set>

#include "absl/strings/str_cat.h"
#include "server/node/flags/snapshot_impl.h"
#include "shared/status/error.h"

namespace backendd::node {

bool SameReading(const Reading& a, const Reading& b) {
  return a.value == b.value && a.layer == b.layer && a.source == b.source && a.entry == b.entry &&
         a.written == b.written && a.requested == b.requested && a.consistent == b.consistent &&
         a.unavailable == b.unavailable;
}

const Reading& SnapshotImpl::Read(FlagId flag, const std::optional<DeviceId>& device) const {
  const Cell& cell = *cells_[flag];
  if (device.has_value()) {
    const auto own = cell.devices.find(*device);
    if (own != cell.devices.end()) return own->second;
  }
  return cell.node;
}

const SessionState* SnapshotImpl::StateOf(SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.get();
}

Reading SnapshotImpl::ReadPrivate(FlagId flag, const std::optional<DeviceId>& device,
                                  const SessionState* session) const {
  const Reading& shared = Read(flag, device);
  if (session == nullptr || session->entries.empty()) return shared;
  Reading own = Resolve(flag, ViewOf(device, session));
  if (own.value == shared.value) own.since = shared.since;
  return own;
}

absl::StatusOr<Reading> SnapshotImpl::ReadFor(FlagId flag, const std::optional<DeviceId>& device,
                                              SessionId session) const {
  const SessionState* state = StateOf(session);
  if (state != nullptr && state->compat && IsMixed(flag, ViewOf(device, state))) {
    const std::string& name = Catalogue::Get().info(flag).name;
    return Error(Reason::kPrecisionMixed,
                 absl::StrCat("flag '", name, "' cannot be read: the legacy and the new precision ",
                              "names were both written and disagree"),
                 {{"flag", name}});
  }
  return ReadPrivate(flag, device, state);
}

std::vector<FlagId> SnapshotImpl::PrivateFlags(SessionId session,
                                               const std::optional<DeviceId>& device) const {
  std::set<FlagId> differing;
  const SessionState* state = StateOf(session);
  if (state == nullptr) return {};
  for (const auto& [written, entries] : state->entries) {
    for (FlagId flag : DependantsOf(written)) {
      if (!SameReading(ReadPrivate(flag, device, state), Read(flag, device)))
        differing.insert(flag);
    }
  }
  return {differing.begin(), differing.end()};
}

std::vector<SessionId> SnapshotImpl::SessionsWithPrivateValues() const {
  std::vector<SessionId> sessions;
  for (const auto& [session, state] : sessions_) {
    if (!state->entries.empty()) sessions.push_back(session);
  }
  return sessions;
}

std::vector<Explanation> SnapshotImpl::Explain(FlagId flag, const std::optional<DeviceId>& device,
                                               std::optional<SessionId> session) const {
  const SessionState* state = session.has_value() ? StateOf(*session) : nullptr;
  return ExplainLayers(flag, ViewOf(device, state));
}

}  // namespace backendd::node
