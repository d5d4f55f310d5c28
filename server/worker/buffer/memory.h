// The device's memory: every slab that is mapped, counted by what it is for.
#ifndef BACKENDD_SERVER_WORKER_BUFFER_MEMORY_H_
#define BACKENDD_SERVER_WORKER_BUFFER_MEMORY_H_

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/worker/device/device.h"
#include "server/worker/plan/plan_cache.h"
#include "shared/sync.h"

namespace backendd::worker {

enum class MemoryUse { kBuffer, kArena, kWorkspace };
inline constexpr int kMemoryUses = 3;

// Owned by the worker; any thread, one call into the device at a time. A fresh slab is zeros, so no
// session ever sees another's bytes. When the device has no more, unpinned plans are dropped and it
// is asked once more.
class Memory {
 public:
  struct Limits {
    uint64_t capacity_bytes = 0;  // of all uses and the plans together
    uint64_t arena_bytes = 0;     // of arenas and imports
  };
  Memory(Device& device, PlanCache& plans, Limits limits)
      : device_(device), plans_(plans), limits_(limits) {}

  // Errors: DEVICE_OUT_OF_MEMORY.
  absl::StatusOr<Slab> Map(MemoryUse use, uint64_t bytes);
  // Whether arenas may have that much more. Errors: HOST_OUT_OF_MEMORY.
  absl::Status CheckArena(uint64_t bytes) const;
  // Errors: HOST_OUT_OF_MEMORY.
  absl::StatusOr<Slab> Import(const Fd& memfd, uint64_t offset, uint64_t bytes, bool writable);
  void Free(MemoryUse use, const Slab& slab);

  uint64_t Used(MemoryUse use) const;

 private:
  absl::Status CheckArenaLocked(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status OutOfMemory(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Slab> Take(MemoryUse use, uint64_t bytes,
                            absl::FunctionRef<absl::StatusOr<Slab>()> map)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t Free() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device& device_;
  PlanCache& plans_;
  const Limits limits_;
  mutable Mutex mutex_;
  std::array<uint64_t, kMemoryUses> used_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_BUFFER_MEMORY_H_
