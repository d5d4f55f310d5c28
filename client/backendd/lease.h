// Flags held for a while: leases at node or device scope, overlays of the own session.
#ifndef BACKENDD_CLIENT_BACKENDD_LEASE_H_
#define BACKENDD_CLIENT_BACKENDD_LEASE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backendd/v1/lease.pb.h"
#include "shared/flag_value.h"

namespace backendd {

class SessionCore;
struct LeaseRecord;

using FlagSettings = std::vector<std::pair<std::string, FlagValue>>;

struct LeaseRequest {
  FlagSettings flags;
  std::string device;                          // its uuid, `cpu`, `cuda:0`; empty: the node
  bool exclusive = false;                      // no other session may lease these flags
  absl::Duration ttl = absl::ZeroDuration();   // 0: lives as long as the session
  absl::Duration wait = absl::ZeroDuration();  // in line, at most 1 h
  int priority = 0;
  std::string owner, reason;
  bool allow_shadowed = false;
};

// Move-only; one thread at a time; released at its end. After a reconnect that made a new session
// it stands for the lease that was taken anew.
class Lease {
 public:
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  uint64_t id() const;
  v1::Lease grant() const;  // as granted, with requested and effective values
  // The fencing token. LEASE_STALE once the lease is lost, or the daemon has not answered for one
  // TTL.
  absl::StatusOr<uint64_t> token() const;
  // Starts its clock anew. Errors: LEASE_UNKNOWN, LEASE_STALE.
  absl::Status Renew();
  // Replaces or adds these values at once, or changes nothing. Errors: LEASE_CONFLICT, those of
  // Acquire.
  absl::Status Update(const FlagSettings& flags);
  // A second release is no error.
  absl::Status Release();

 private:
  friend class Session;
  Lease(std::shared_ptr<SessionCore> core, std::shared_ptr<LeaseRecord> record)
      : core_(std::move(core)), record_(std::move(record)) {}

  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<LeaseRecord> record_;
};

// Private flags of this session while it lives; overlays end in any order and from any thread.
class ScopedFlags {
 public:
  absl::Status End() { return lease_.Release(); }
  v1::Lease grant() const { return lease_.grant(); }

 private:
  friend class Session;
  explicit ScopedFlags(Lease lease) : lease_(std::move(lease)) {}
  Lease lease_;
};

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_LEASE_H_
