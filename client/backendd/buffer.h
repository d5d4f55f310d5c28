// Memory of a device that this session owns, and views of it.
#ifndef BACKENDD_CLIENT_BACKENDD_BUFFER_H_
#define BACKENDD_CLIENT_BACKENDD_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "backendd/v1/tensor.pb.h"
#include "shared/tensor.h"

namespace backendd {

class SessionCore;
struct BufferRecord;

// A view of a buffer: what operations take and give. A plain value; without a dtype it is the
// answer of something that was refused.
struct Tensor {
  uint64_t buffer = 0;
  uint64_t offset = 0;  // bytes
  TensorType type;

  bool valid() const { return type.dtype != DType::kUnspecified; }
  v1::Operand operand() const;
  // Of a row-major tensor, with as many elements; else an invalid one.
  Tensor Reshape(absl::Span<const int64_t> shape) const;
  // Two dimensions swapped; indices begin..end - 1 of one. An invalid one where they do not exist.
  Tensor Transpose(int a, int b) const;
  Tensor Slice(int dim, int64_t begin, int64_t end) const;
};

// Move-only; one thread at a time; freed at its end (by the worker, after the programs that use
// it). Zeros at first.
class Buffer {
 public:
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  uint64_t id() const;
  uint64_t size_bytes() const;
  // An arena's bytes, shared with the worker: a program's results are there when Submit has
  // returned. Empty for device memory.
  std::span<std::byte> data() const;
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data().data()), data().size() / sizeof(T)};
  }
  // A row-major view from `offset` bytes on; an invalid one where it does not fit.
  Tensor View(DType dtype, absl::Span<const int64_t> shape, uint64_t offset = 0) const;
  // In chunks through gRPC, for device memory. Errors: SIZE_TOO_LARGE, BUFFER_UNKNOWN,
  // BUFFER_POISONED.
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes);
  absl::Status Read(uint64_t offset, std::span<std::byte> bytes) const;
  // A second one is no error.
  absl::Status Free();

 private:
  friend class Session;
  Buffer(std::shared_ptr<SessionCore> core, std::shared_ptr<BufferRecord> record)
      : core_(std::move(core)), record_(std::move(record)) {}

  std::shared_ptr<SessionCore> core_;
  std::shared_ptr<BufferRecord> record_;
};

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_BUFFER_H_
