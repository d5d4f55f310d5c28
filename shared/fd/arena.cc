#include "shared/fd/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace backendd {
namespace {

absl::Status NoMemory(uint64_t bytes, int error) {
  return Error(Reason::kHostOutOfMemory,
               absl::StrCat("the host cannot give ", bytes, " bytes: ", std::strerror(error)),
               {{"requested", absl::StrCat(bytes)}});
}

// Memory files have no limit of their own: who allocates past what the host has is not refused but
// killed.
absl::Status CheckHostHas(uint64_t bytes) {
  const uint64_t limit = MaxArenaBytes();
  if (bytes <= limit) return absl::OkStatus();
  return Error(Reason::kHostOutOfMemory,
               absl::StrCat(bytes, " bytes are more than a quarter of the host's memory, ", limit),
               {{"requested", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}});
}

}  // namespace

uint64_t MaxArenaBytes() {
  static const uint64_t limit = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 4;
  return limit;
}

absl::StatusOr<Fd> CreateArena(uint64_t bytes) {
  if (bytes == 0) return Error(Reason::kArgumentInvalid, "an arena of 0 bytes; 1 or more");
  RETURN_IF_ERROR(CheckHostHas(bytes));
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd fd(memfd_create("backendd-arena", kFlags | MFD_NOEXEC_SEAL));
  if (!fd && errno == EINVAL) fd.reset(memfd_create("backendd-arena", kFlags));  // before Linux 6.3
  if (!fd || fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return NoMemory(bytes, errno);
  return fd;
}

absl::StatusOr<Access> CheckImport(int fd, uint64_t offset, uint64_t length) {
  if (length == 0) return Error(Reason::kArgumentInvalid, "an import of 0 bytes; 1 or more");
  struct stat info;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return Error(Reason::kHandleKind, "the fd is no memfd");
  // A file of /dev/shm answers SEAL and no error: only the needed bits say anything.
  if ((seals & F_SEAL_SHRINK) == 0 || (seals & F_SEAL_GROW) == 0)
    return Error(Reason::kSealsMissing,
                 "the memfd is not sealed against shrinking and growing: F_SEAL_SHRINK and "
                 "F_SEAL_GROW are needed",
                 {{"needed", "F_SEAL_SHRINK,F_SEAL_GROW"}});
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (offset > size || length > size - offset)
    return Error(Reason::kSizeTooLarge,
                 absl::StrCat("offset ", offset, " and length ", length, " pass the memfd's ", size,
                              " bytes"),
                 {{"limit", absl::StrCat(size)}});
  constexpr int kFutureWrite = 0x10;
  return (seals & (F_SEAL_WRITE | kFutureWrite)) != 0 ? Access::kReadOnly : Access::kReadWrite;
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  reset();
  base_ = std::exchange(other.base_, nullptr);
  mapped_ = std::exchange(other.mapped_, 0);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void Mapping::reset() {
  if (base_ != nullptr) munmap(base_, mapped_);
  base_ = nullptr;
  data_ = nullptr;
  mapped_ = size_ = 0;
}

absl::StatusOr<Mapping> MapShared(int fd, uint64_t offset, uint64_t length, Access access) {
  if (length == 0) return Error(Reason::kArgumentInvalid, "a mapping of 0 bytes; 1 or more");
  RETURN_IF_ERROR(CheckHostHas(length));
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t skip = offset % page;
  const bool writes = access == Access::kReadWrite;
  const size_t bytes = length + skip;
  void* base = mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                    writes ? MAP_SHARED : MAP_PRIVATE, fd, static_cast<off_t>(offset - skip));
  if (base == MAP_FAILED) {
    if (errno == ENOMEM || errno == EOVERFLOW) return NoMemory(length, errno);
    return Error(Reason::kHandleKind,
                 absl::StrCat("the fd cannot be mapped: ", std::strerror(errno)));
  }
  Mapping mapping;
  mapping.base_ = base;
  mapping.mapped_ = bytes;
  mapping.data_ = static_cast<std::byte*>(base) + skip;
  mapping.size_ = length;
  // EINVAL: a kernel before 5.14, which populates at first touch.
  if (madvise(base, bytes, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0 &&
      errno != EINVAL)
    return NoMemory(length, errno);
  return mapping;
}

}  // namespace backendd
