// The flags that programs run under: what the daemon has committed, by session.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_FLAG_TABLE_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_FLAG_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backendd/control/v1/control.pb.h"
#include "backendd/v1/operation.pb.h"
#include "server/flags/precision.h"
#include "server/worker/device/device.h"
#include "shared/ids.h"
#include "shared/sync.h"

namespace backendd::worker {

// All flags at one revision for one session, or for one operation with flags of its own. Immutable.
class FlagSet final : public FlagValues {
 public:
  const FlagState& Get(FlagId flag) const override { return states_[flag]; }
  // A number for the flag's value and whether somebody asked for it; equal sets have equal numbers.
  // Plans are keyed by it.
  uint32_t Number(FlagId flag) const { return numbers_[flag]; }

 private:
  friend class FlagTable;
  std::vector<FlagState> states_;
  std::vector<uint32_t> numbers_;
  PrecisionTree tree_;  // the entries before the walk
};

struct PinnedFlags {
  uint64_t revision = 0;
  std::shared_ptr<const FlagSet> flags;
};

// Owned by the worker. Commit by the control thread; everything else by any thread.
class FlagTable {
 public:
  FlagTable();

  void Commit(const control::v1::Snapshot& snapshot);
  void Forget(SessionId session);

  uint64_t revision() const;
  std::string epoch() const;
  PinnedFlags Pin(SessionId session);
  // LEASE_STALE unless the lease holds with this token, and is the session's.
  absl::Status CheckFence(SessionId session, LeaseId lease, uint64_t token) const;

  // `flags` with those of one operation above them, the fp32 tree walked again. Errors:
  // FLAG_UNKNOWN, FLAG_VALUE_INVALID, SCOPE_INVALID (not a flag of a single call).
  absl::StatusOr<std::shared_ptr<const FlagSet>> WithCall(
      const FlagSet& flags, const google::protobuf::RepeatedPtrField<v1::CallFlag>& call);

  // The effective value without anybody's private one.
  FlagValue Value(FlagId flag) const;

 private:
  struct Private {
    std::vector<control::v1::FlagState> states;
    std::shared_ptr<const FlagSet> set;  // made at the first use after a change
    uint64_t made_at = 0;                // the commit that it rests on
  };

  void Apply(const control::v1::FlagState& state, FlagSet* set)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Set(FlagId flag, FlagState state, FlagSet* set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t commits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string epoch_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const FlagSet> common_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<SessionId, Private> private_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<LeaseId, std::pair<SessionId, uint64_t>> leases_ ABSL_GUARDED_BY(mutex_);
  // Values that were ever seen, by flag: a flag has few.
  std::map<std::pair<bool, FlagValue>, uint32_t> numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_FLAG_TABLE_H_
