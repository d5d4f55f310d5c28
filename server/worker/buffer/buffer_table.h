// The buffers of one session, by the ids that its client chose.
#ifndef BACKENDD_SERVER_WORKER_BUFFER_BUFFER_TABLE_H_
#define BACKENDD_SERVER_WORKER_BUFFER_BUFFER_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/worker/buffer/memory.h"
#include "shared/fd/fd.h"

namespace backendd::worker {

// Raw bytes. READY from its first moment (zeros); parts of it are poisoned while what a failed
// operation should have written there was not written anew.
struct Buffer {
  uint64_t id = 0;
  uint64_t bytes = 0;
  Slab slab;
  MemoryUse use = MemoryUse::kBuffer;
  Fd memfd;  // arenas only
  uint64_t memfd_offset = 0;
  bool writable = true;
  bool releasing = false;
  uint32_t pins = 0;  // operands of programs that are admitted and not done

  using Cause = std::shared_ptr<const absl::Status>;
  void Poison(uint64_t begin, uint64_t end, Cause cause);
  void Heal(uint64_t begin, uint64_t end);                           // all of it was written
  const absl::Status* PoisonIn(uint64_t begin, uint64_t end) const;  // nullptr: none
  bool poisoned() const { return !poison_.empty(); }

 private:
  struct Range {
    uint64_t begin, end;
    Cause cause;
  };
  std::vector<Range> poison_;  // disjoint
};

// What a session may have; resolved defaults.
struct Quotas {
  uint64_t bytes = UINT64_MAX;  // what the device has left
  uint64_t buffers = 65536;
  uint64_t imports = 256;
  uint64_t programs = 64;
  uint64_t operations = 4096;
};
// QUOTA_EXCEEDED naming the quota, its limit, what is used and what was asked for; OK within it.
absl::Status CheckQuota(absl::string_view quota, uint64_t limit, uint64_t used, uint64_t asked);

// Owned by the session, under the session's lock. Its bytes are part of the worker's ledger: the
// sum over sessions equals what Memory has mapped as buffers and arenas.
class BufferTable {
 public:
  explicit BufferTable(Memory& memory) : memory_(memory) {}
  ~BufferTable() { FreeAll(); }

  struct Request {
    uint64_t id, bytes;
  };
  // All or none. Errors: ARGUMENT_INVALID (id 0, twice in one call), SHAPE_INVALID (0 bytes, 2^63
  // or more), BUFFER_EXISTS, BUFFER_RELEASING, QUOTA_EXCEEDED, DEVICE_OUT_OF_MEMORY.
  absl::Status Allocate(absl::Span<const Request> requests, const Quotas& quotas);
  // An arena or a client's memfd that has been checked. Errors: as above, HOST_OUT_OF_MEMORY.
  absl::Status Import(uint64_t id, Fd memfd, uint64_t offset, uint64_t bytes, bool writable,
                      const Quotas& quotas);
  // Whether Import would be refused, before its memory is made.
  absl::Status CheckImport(uint64_t id, uint64_t bytes, const Quotas& quotas) const;
  // All or none; answers those that are freed at their last unpin. Errors: BUFFER_UNKNOWN,
  // BUFFER_RELEASING.
  absl::StatusOr<std::vector<uint64_t>> Free(absl::Span<const uint64_t> ids);

  // Errors: BUFFER_UNKNOWN (the same text whether the id is another session's or nobody's),
  // BUFFER_RELEASING.
  absl::StatusOr<Buffer*> Find(uint64_t id) const;
  Buffer* Get(uint64_t id) const;  // nullptr: none, or releasing
  void Unpin(Buffer* buffer);
  uint64_t FreeAll();  // how many bytes that was; nothing may be pinned

  uint64_t bytes() const { return bytes_; }
  uint64_t size() const { return buffers_.size(); }

 private:
  absl::Status CheckNew(absl::Span<const Request> requests, const Quotas& quotas) const;
  void Release(Buffer& buffer);

  Memory& memory_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers_;
  uint64_t bytes_ = 0;
  uint64_t imports_ = 0;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_BUFFER_BUFFER_TABLE_H_
