// A program as it was sent: its operations decoded and checked against themselves. No buffers yet.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_LISTING_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_LISTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backendd/v1/compute_service.pb.h"
#include "server/worker/buffer/buffer_table.h"
#include "server/worker/device/device.h"
#include "server/worker/program/flag_table.h"
#include "shared/operation/operation.h"

namespace backendd::worker {

struct ListedOperation {
  DecodedOperation decoded;
  std::string tag;
  google::protobuf::RepeatedPtrField<v1::CallFlag> flags;
};

// Immutable once made; a prepared program shares its own among its runs.
struct Listing {
  std::vector<ListedOperation> operations;
  uint64_t hash = 0;
};

// Decodes and infers every operation. Errors: QUOTA_EXCEEDED (operations; inline bytes), and every
// violation of every operation at once.
absl::StatusOr<std::shared_ptr<const Listing>> MakeListing(
    const google::protobuf::RepeatedPtrField<v1::Operation>& operations, uint64_t limit);

// One operation of a run: what it works on, and how.
struct Step {
  const ListedOperation* operation = nullptr;
  absl::InlinedVector<Buffer*, 6> buffers;    // null: absent
  absl::InlinedVector<Address, 6> addresses;  // null: absent or without elements
  absl::InlinedVector<uint64_t, 6> offsets;
  std::shared_ptr<const FlagSet> flags;  // null: the program's
  std::shared_ptr<const Plan> plan;      // null: bytes are moved, nothing is computed
  bool plan_hit = false;
  Fault fault;
  absl::Status status;
  absl::Duration device_time;

  const OperationSpec& spec() const { return operation->decoded.spec; }
};

// Finds every operand's bytes: ids, bounds, alignment, read-only imports, overlaps of outputs.
// Pure; the caller holds the session's lock. Pins nothing.
void Resolve(const Listing& listing, const BufferTable& buffers,
             const google::protobuf::RepeatedPtrField<v1::Binding>& bindings,
             std::vector<Step>* steps, std::vector<Violation>* violations);

// Whether two views of one buffer may share a byte (false only where that is certain).
bool MayOverlap(const TensorType& a, uint64_t a_offset, const TensorType& b, uint64_t b_offset);

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_LISTING_H_
