#include "server/worker/rpc/caller.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "server/listener/peer.h"

namespace backendd::worker {

std::string GrantToken(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find("backendd-grant");
  if (found == context.client_metadata().end()) return "";
  const absl::string_view hex(found->second.data(), found->second.size());
  if (hex.size() != 32 || !std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit)) return "";
  return absl::HexStringToBytes(hex);
}

Caller CallerOf(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const Peer> peer = PeerOf(context);
  if (peer == nullptr) return {};
  return {peer->uid, peer->pid, peer->pidfd_inode};
}

absl::StatusOr<std::shared_ptr<Session>> SessionOf(const SessionTable& sessions,
                                                   const grpc::CallbackServerContext& context,
                                                   uint64_t session_id) {
  return sessions.Authenticate(SessionId(session_id), GrantToken(context), CallerOf(context));
}

absl::StatusOr<absl::Duration> DeadlineOf(const grpc::CallbackServerContext& context,
                                          const v1::SubmitRequest& request, const Clock& clock) {
  absl::Duration left = absl::InfiniteDuration();
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max())
    left = absl::FromChrono(deadline - std::chrono::system_clock::now());
  if (request.has_deadline()) {
    const absl::Duration own =
        absl::Seconds(request.deadline().seconds()) + absl::Nanoseconds(request.deadline().nanos());
    if (own < absl::ZeroDuration() || request.deadline().nanos() >= 1000000000)
      return Error(Reason::kArgumentInvalid, "'deadline' is no duration of 0 or more");
    left = std::min(left, own);
  }
  return left == absl::InfiniteDuration() ? left : clock.Steady() + left;
}

}  // namespace backendd::worker
