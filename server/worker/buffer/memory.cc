#include "server/worker/buffer/memory.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace backendd::worker {

uint64_t Memory::Free() const {
  const uint64_t used = used_[0] + used_[1] + used_[2] + plans_.bytes();
  return used < limits_.capacity_bytes ? limits_.capacity_bytes - used : 0;
}

absl::Status Memory::OutOfMemory(uint64_t bytes) const {
  return Error(Reason::kDeviceOutOfMemory,
               absl::StrCat("the device has ", Free(), " bytes left, not ", bytes),
               {{"requested", absl::StrCat(bytes)},
                {"device_free", absl::StrCat(Free())},
                {"plan_bytes", absl::StrCat(plans_.bytes())},
                {"workspace_bytes", absl::StrCat(used_[static_cast<int>(MemoryUse::kWorkspace)])}});
}

absl::StatusOr<Slab> Memory::Take(MemoryUse use, uint64_t bytes,
                                  absl::FunctionRef<absl::StatusOr<Slab>()> map) {
  if (bytes > Free()) plans_.DropUnpinned();
  if (bytes > Free()) return OutOfMemory(bytes);
  absl::StatusOr<Slab> slab = map();
  if (!slab.ok() && ReasonOf(slab.status()) == Reason::kDeviceOutOfMemory) {
    plans_.DropUnpinned();
    slab = map();
  }
  if (slab.ok()) used_[static_cast<int>(use)] += slab->bytes;
  return slab;
}

absl::StatusOr<Slab> Memory::Map(MemoryUse use, uint64_t bytes) {
  MutexLock lock(&mutex_);
  return Take(use, bytes, [&] { return device_.MapSlab(SlabKind::kDevice, bytes); });
}

absl::Status Memory::CheckArenaLocked(uint64_t bytes) const {
  const uint64_t arenas = used_[static_cast<int>(MemoryUse::kArena)];
  if (bytes <= limits_.arena_bytes && arenas <= limits_.arena_bytes - bytes)
    return absl::OkStatus();
  return Error(Reason::kHostOutOfMemory,
               absl::StrCat("arenas may have ", limits_.arena_bytes, " bytes in all; ", arenas,
                            " are in use, ", bytes, " were asked for"),
               {{"requested", absl::StrCat(bytes)},
                {"limit", absl::StrCat(limits_.arena_bytes)},
                {"used", absl::StrCat(arenas)}});
}

absl::Status Memory::CheckArena(uint64_t bytes) const {
  MutexLock lock(&mutex_);
  return CheckArenaLocked(bytes);
}

absl::StatusOr<Slab> Memory::Import(const Fd& memfd, uint64_t offset, uint64_t bytes,
                                    bool writable) {
  MutexLock lock(&mutex_);
  if (absl::Status status = CheckArenaLocked(bytes); !status.ok()) return status;
  return Take(MemoryUse::kArena, bytes,
              [&] { return device_.Import(memfd, offset, bytes, writable); });
}

void Memory::Free(MemoryUse use, const Slab& slab) {
  MutexLock lock(&mutex_);
  uint64_t& used = used_[static_cast<int>(use)];
  if (slab.bytes > used) std::abort();  // freed twice: our own books are wrong
  used -= slab.bytes;
  device_.UnmapSlab(slab);
}

uint64_t Memory::Used(MemoryUse use) const {
  MutexLock lock(&mutex_);
  return used_[static_cast<int>(use)];
}

}  // namespace backendd::worker
