#include "server/worker/buffer/buffer_table.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

absl::Status Unknown(uint64_t id) {
  return Error(Reason::kBufferUnknown, absl::StrCat("the session has no buffer ", id),
               {{"buffer", absl::StrCat(id)}});
}
absl::Status Releasing(uint64_t id) {
  return Error(Reason::kBufferReleasing,
               absl::StrCat("buffer ", id, " is freed when the programs that use it are done"),
               {{"buffer", absl::StrCat(id)}});
}

}  // namespace

void Buffer::Heal(uint64_t begin, uint64_t end) {
  if (poison_.empty() || begin >= end) return;
  std::vector<Range> left;
  for (Range& range : poison_) {
    if (range.end <= begin || end <= range.begin) {
      left.push_back(std::move(range));
      continue;
    }
    if (range.begin < begin) left.push_back({range.begin, begin, range.cause});
    if (end < range.end) left.push_back({end, range.end, range.cause});
  }
  poison_ = std::move(left);
}

void Buffer::Poison(uint64_t begin, uint64_t end, Cause cause) {
  if (begin >= end) return;
  Heal(begin, end);
  poison_.push_back({begin, end, std::move(cause)});
}

const absl::Status* Buffer::PoisonIn(uint64_t begin, uint64_t end) const {
  for (const Range& range : poison_) {
    if (range.begin < end && begin < range.end) return range.cause.get();
  }
  return nullptr;
}

absl::Status CheckQuota(absl::string_view quota, uint64_t limit, uint64_t used, uint64_t asked) {
  if (used <= limit && asked <= limit - used) return absl::OkStatus();
  return Error(Reason::kQuotaExceeded,
               absl::StrCat("the session's quota of ", quota, " is ", limit, "; it uses ", used,
                            " and asks for ", asked, " more"),
               {{"quota", Str(quota)},
                {"limit", absl::StrCat(limit)},
                {"used", absl::StrCat(used)},
                {"requested", absl::StrCat(asked)}});
}

absl::Status BufferTable::CheckNew(absl::Span<const Request> requests, const Quotas& quotas) const {
  absl::flat_hash_set<uint64_t> ids;
  uint64_t bytes = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    if (request.id == 0)
      return Error(Reason::kIdInvalid, absl::StrCat("buffers[", i, "].buffer is 0; 1 or more"));
    if (!ids.insert(request.id).second)
      return Error(Reason::kBufferExists,
                   absl::StrCat("buffer ", request.id, " is asked for twice"),
                   {{"buffer", absl::StrCat(request.id)}});
    if (request.bytes == 0 || request.bytes > uint64_t{INT64_MAX} ||
        bytes > uint64_t{INT64_MAX} - request.bytes)
      return ErrorFrom({{absl::StrCat("buffers[", i, "].bytes"), Reason::kShapeInvalid,
                         absl::StrCat("buffers[", i, "].bytes is ", request.bytes,
                                      "; allowed: 1 to 2^63 - 1 in all")}});
    bytes += request.bytes;
    if (const auto found = buffers_.find(request.id); found != buffers_.end()) {
      if (found->second->releasing) return Releasing(request.id);
      return Error(Reason::kBufferExists,
                   absl::StrCat("the session has a buffer ", request.id, " already"),
                   {{"buffer", absl::StrCat(request.id)}});
    }
  }
  RETURN_IF_ERROR(CheckQuota("buffers", quotas.buffers, buffers_.size(), requests.size()));
  return CheckQuota("bytes", quotas.bytes, bytes_, bytes);
}

absl::Status BufferTable::Allocate(absl::Span<const Request> requests, const Quotas& quotas) {
  RETURN_IF_ERROR(CheckNew(requests, quotas));
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::StatusOr<Slab> slab = memory_.Map(MemoryUse::kBuffer, requests[i].bytes);
    if (!slab.ok()) {
      while (i-- > 0) Release(*buffers_.at(requests[i].id));
      return slab.status();
    }
    auto buffer = std::make_unique<Buffer>();
    buffer->id = requests[i].id;
    buffer->slab = *slab;
    buffer->bytes = requests[i].bytes;
    bytes_ += slab->bytes;
    buffers_.emplace(buffer->id, std::move(buffer));
  }
  return absl::OkStatus();
}

absl::Status BufferTable::CheckImport(uint64_t id, uint64_t bytes, const Quotas& quotas) const {
  const Request request{id, bytes};
  RETURN_IF_ERROR(CheckNew(absl::MakeConstSpan(&request, 1), quotas));
  RETURN_IF_ERROR(CheckQuota("imports", quotas.imports, imports_, 1));
  return memory_.CheckArena(bytes);
}

absl::Status BufferTable::Import(uint64_t id, Fd memfd, uint64_t offset, uint64_t bytes,
                                 bool writable, const Quotas& quotas) {
  RETURN_IF_ERROR(CheckImport(id, bytes, quotas));
  ASSIGN_OR_RETURN(const Slab slab, memory_.Import(memfd, offset, bytes, writable));
  auto buffer = std::make_unique<Buffer>();
  buffer->id = id;
  buffer->slab = slab;
  buffer->bytes = bytes;
  buffer->use = MemoryUse::kArena;
  buffer->memfd = std::move(memfd);
  buffer->memfd_offset = offset;
  buffer->writable = writable;
  bytes_ += slab.bytes;
  ++imports_;
  buffers_.emplace(id, std::move(buffer));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> BufferTable::Free(absl::Span<const uint64_t> ids) {
  absl::flat_hash_set<uint64_t> once;
  for (uint64_t id : ids) {
    ASSIGN_OR_RETURN([[maybe_unused]] Buffer* const buffer, Find(id));
    if (!once.insert(id).second) return Unknown(id);
  }
  std::vector<uint64_t> deferred;
  for (uint64_t id : ids) {
    Buffer& buffer = *buffers_.at(id);
    if (buffer.pins > 0) {
      buffer.releasing = true;
      deferred.push_back(id);
    } else {
      Release(buffer);
    }
  }
  return deferred;
}

void BufferTable::Release(Buffer& buffer) {
  memory_.Free(buffer.use, buffer.slab);
  bytes_ -= buffer.slab.bytes;
  if (buffer.use == MemoryUse::kArena) --imports_;
  buffers_.erase(buffer.id);
}

absl::StatusOr<Buffer*> BufferTable::Find(uint64_t id) const {
  const auto found = buffers_.find(id);
  if (found == buffers_.end()) return Unknown(id);
  if (found->second->releasing) return Releasing(id);
  return found->second.get();
}

Buffer* BufferTable::Get(uint64_t id) const {
  const auto found = buffers_.find(id);
  return found == buffers_.end() || found->second->releasing ? nullptr : found->second.get();
}

void BufferTable::Unpin(Buffer* buffer) {
  if (--buffer->pins == 0 && buffer->releasing) Release(*buffer);
}

uint64_t BufferTable::FreeAll() {
  const uint64_t bytes = bytes_;
  while (!buffers_.empty()) Release(*buffers_.begin()->second);
  return bytes;
}

}  // namespace backendd::worker
