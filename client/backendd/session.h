// One client process at the daemon: its private flags, leases, buffers and programs.
#ifndef BACKENDD_CLIENT_BACKENDD_SESSION_H_
#define BACKENDD_CLIENT_BACKENDD_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backendd/buffer.h"
#include "backendd/lease.h"
#include "backendd/program.h"
#include "backendd/v1/compute_service.pb.h"
#include "backendd/v1/flag_service.pb.h"
#include "backendd/v1/session_service.pb.h"

namespace backendd {

class Client;
class SessionCore;

// The stream broke; the session comes back by itself.
struct Disconnected {
  absl::Status why;
};
// The daemon answers again. A new session gets its leases anew (each a LeaseReacquired before
// this), its private flags and its arenas; device buffers are zeros again.
struct Reconnected {
  bool same_session = false;
};
// A lease of the old session, taken again for the new one, or not.
struct LeaseReacquired {
  uint64_t old_id = 0;
  absl::StatusOr<v1::Lease> grant;
};
using SessionEvent = std::variant<v1::LeaseEvent, v1::DeviceEvent, v1::DrainingEvent, Disconnected,
                                  Reconnected, LeaseReacquired>;

struct SessionOptions {
  std::string name;
  std::map<std::string, std::string> labels;
  absl::Duration ttl = absl::Seconds(10);              // 200 ms to 24 h
  absl::Duration resume_grace = absl::ZeroDuration();  // at most 30 s
  // Called by the session's own thread: it must not end the session and should not block.
  std::function<void(const SessionEvent&)> on_event;
};

// Owned by the program; any thread may call it. Leases, buffers and programs may outlive it; their
// calls then answer SESSION_UNKNOWN. Two threads of its own: one reads the stream, one sends a
// heartbeat each third of the TTL. Its end says goodbye. In a forked child every call answers
// SESSION_FORKED and its end does nothing.
class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  uint64_t id() const;  // another one after a reconnect that made a new session
  uint64_t revision()
      const;  // the newest that this session has made; its programs run under no older one
  bool connected() const;

  // Values as this session sees them, private ones included.
  absl::StatusOr<v1::FlagReading> Get(const std::string& flag, const std::string& device = "");
  // Private values of this session, all or none. Errors: those of FlagService.SetFlags.
  absl::StatusOr<v1::SetFlagsResponse> Set(const FlagSettings& settings);
  absl::StatusOr<v1::UnsetFlagsResponse> Unset(const std::vector<std::string>& flags);
  // A private overlay that ends with its handle, in any order with others.
  absl::StatusOr<ScopedFlags> Flags(const FlagSettings& settings);
  // Errors: those of LeaseService.AcquireLease.
  absl::StatusOr<Lease> Acquire(const LeaseRequest& request);

  // Until the device's worker serves. Errors: DEVICE_UNKNOWN, WORKER_STARTING after the timeout.
  absl::Status WaitServing(const std::string& device, absl::Duration timeout);
  // Memory of the worker's, mapped here too. Errors: QUOTA_EXCEEDED, HOST_OUT_OF_MEMORY,
  // DEVICE_LOST.
  absl::StatusOr<Buffer> AllocateArena(const std::string& device, uint64_t bytes);
  // Memory of the device, not mapped here.
  absl::StatusOr<Buffer> Allocate(const std::string& device, uint64_t bytes);
  Program NewProgram(const std::string& device);
  absl::StatusOr<v1::DescribeDeviceResponse> DescribeDevice(const std::string& device);
  absl::StatusOr<std::vector<v1::PlanCache>> PlanCaches(const std::string& device,
                                                        const std::string& kind = "");
  absl::StatusOr<uint64_t> ClearPlanCache(const std::string& device, const std::string& kind = "");

 private:
  friend class Client;
  explicit Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}
  absl::StatusOr<Buffer> AllocateBuffer(const std::string& device, uint64_t bytes, bool mapped);
  absl::StatusOr<Lease> Acquire(const LeaseRequest& request, v1::ScopeKind scope);

  std::shared_ptr<SessionCore> core_;
};

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_SESSION_H_
