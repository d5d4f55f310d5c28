// Shared memory as sealed memfds: made by the worker, mapped by both; or made by a client and
// checked.
#ifndef BACKENDD_SHARED_FD_ARENA_H_
#define BACKENDD_SHARED_FD_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/fd/fd.h"

namespace backendd {

// One arena or import at most: a quarter of the host's memory.
uint64_t MaxArenaBytes();

// A memfd of `bytes` zeros, all of them allocated, that can neither shrink nor grow nor get other
// seals. Errors: ARGUMENT_INVALID (0 bytes), HOST_OUT_OF_MEMORY.
absl::StatusOr<Fd> CreateArena(uint64_t bytes);

enum class Access { kReadWrite, kReadOnly };

// Whether a stranger's fd may be mapped: a memfd sealed against SHRINK and GROW, and at least
// offset + length long. Answers how it may be mapped: sealed against writes means read only.
// Errors: HANDLE_KIND (no memfd), SEALS_MISSING, SIZE_TOO_LARGE, ARGUMENT_INVALID (empty).
absl::StatusOr<Access> CheckImport(int fd, uint64_t offset, uint64_t length);

// A mapping; move-only; unmaps at its end. The fd may be closed before.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept { *this = std::move(other); }
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  friend absl::StatusOr<Mapping> MapShared(int fd, uint64_t offset, uint64_t length, Access access);
  void* base_ = nullptr;  // at a page; `data_` may lie behind it
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Maps [offset, offset + length) and populates it, so that a page that cannot be had is an error
// here and not a signal later. Read only maps are private. Errors: HOST_OUT_OF_MEMORY, HANDLE_KIND.
absl::StatusOr<Mapping> MapShared(int fd, uint64_t offset, uint64_t length,
                                  Access access = Access::kReadWrite);

}  // namespace backendd

#endif  // BACKENDD_SHARED_FD_ARENA_H_
