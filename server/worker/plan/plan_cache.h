// Built plans by key. One per device, for every kind of plan; torch's cufft_plan_cache is a view of
// the kind "fft".
#ifndef BACKENDD_SERVER_WORKER_PLAN_PLAN_CACHE_H_
#define BACKENDD_SERVER_WORKER_PLAN_PLAN_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/worker/device/device.h"
#include "shared/clock.h"
#include "shared/sync.h"

namespace backendd::worker {

enum class PlanKind { kFft, kConvolution, kGemm, kOther };
inline constexpr int kPlanKinds = 4;
absl::string_view PlanKindName(PlanKind kind);  // "fft", "convolution", "gemm", "other"
PlanKind PlanKindOf(OpKind kind);

struct PlanLookup {
  std::shared_ptr<const Plan> plan;  // pinned while held
  bool hit = false;
};

struct PlanCacheStats {
  uint64_t size = 0, max_size = 0, hits = 0, misses = 0, evictions = 0, bytes = 0, pinned = 0;
};

// Owned by the worker; any thread. Least recently used first out, by entries of a kind and by bytes
// of all. A plan that somebody holds is pinned: it is passed over, and evicted by the first Trim()
// after its last holder let go. Ends with its owner, when nobody holds a plan.
class PlanCache {
 public:
  struct Options {
    std::array<uint64_t, kPlanKinds> entries = {4096, 10000, 16384, 4096};
    uint64_t bytes = uint64_t{256} << 20;
    absl::Duration negative = absl::Seconds(30);  // how long a failure is remembered
  };
  using Build = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Plan>>()>;

  PlanCache(Options options, const Clock& clock) : options_(options), clock_(clock) {}

  // The plan, where there is one; never waits, counts a hit only.
  std::shared_ptr<const Plan> Find(PlanKind kind, absl::string_view key);
  // The plan, built by `build` where there is none; N callers at once, one build. A build without
  // memory drops every unpinned plan and tries once more. Errors: those of `build`.
  absl::StatusOr<PlanLookup> Get(PlanKind kind, absl::string_view key, Build build);

  void SetLimit(PlanKind kind, uint64_t entries);  // 0: build, run, drop
  uint64_t Clear(PlanKind kind);  // how many; pinned ones are freed at their last use
  void Trim();                    // evicts what was pinned when it should have gone
  void DropUnpinned();            // when memory is short
  PlanCacheStats Describe(PlanKind kind) const;
  uint64_t bytes() const;
  uint64_t max_bytes() const { return options_.bytes; }

 private:
  struct Flight {
    CondVar done;
    bool finished = false;
    absl::StatusOr<std::shared_ptr<const Plan>> result;
  };
  struct Entry {
    std::string key;
    std::shared_ptr<const Plan> plan;
    uint64_t used = 0;  // tick of the last use, over all kinds
  };
  struct Negative {
    absl::Status status;
    absl::Duration until;
  };
  struct Kind {
    std::list<Entry> entries;  // most recent first
    absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_key;
    absl::flat_hash_map<std::string, std::shared_ptr<Flight>> flights;
    absl::flat_hash_map<std::string, Negative> negatives;
    uint64_t generation = 0;  // of Clear and SetLimit(0): a build begun before is not kept
    PlanCacheStats stats;     // hits, misses, evictions
  };

  std::shared_ptr<const Plan> FindLocked(Kind& kind, absl::string_view key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(std::vector<std::shared_ptr<const Plan>>* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(Kind& kind, std::list<Entry>::iterator entry,
            std::vector<std::shared_ptr<const Plan>>* dropped)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Pinned(const Entry& entry) { return entry.plan.use_count() > 1; }

  const Options options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::array<uint64_t, kPlanKinds> limits_ ABSL_GUARDED_BY(mutex_) = options_.entries;
  std::array<Kind, kPlanKinds> kinds_ ABSL_GUARDED_BY(mutex_);
  uint64_t tick_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> over_ = false;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PLAN_PLAN_CACHE_H_
