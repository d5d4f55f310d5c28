// The seam between what is written once (verifier, plan cache, allocator, ledger, executor, stamps)
// and a device. Nothing below it knows sessions, quotas or gRPC. The CPU implements it now, CUDA
// next; FakeDevice in tests.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_DEVICE_H_
#define BACKENDD_SERVER_WORKER_DEVICE_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/flags/catalogue.h"
#include "shared/fd/fd.h"
#include "shared/flag_value.h"
#include "shared/operation/operation.h"

namespace backendd::worker {

// The flags that an operation runs under: resolved values by catalogue index (fp32 tree walked),
// with the layer of each (number of the wire's Layer; above 1 = somebody asked). Immutable, shared
// by all operations of a program.
struct FlagState {
  FlagValue value;
  int layer = 1;
};
class FlagValues {
 public:
  virtual ~FlagValues() = default;
  virtual const FlagState& Get(FlagId flag) const = 0;
};

// A request that the device did not honour.
struct Unmet {
  FlagId flag;
  FlagValue requested;
  FlagValue effective;
  absl::string_view reason;  // NOT_BUILT, LIBRARY_VERSION, HARDWARE, DTYPE, SHAPE, WORKSPACE,
                             // OVERRULED, NOT_USED_BY_LIBRARY
  std::string detail;
};

// What the stamp says of a plan.
struct Choice {
  std::string library;  // onednn, openblas, fftw, own
  std::string library_version;
  std::string algorithm;  // the library's implementation name or the kernel's
  int threads = 1;
  uint64_t copied_bytes = 0;      // operands made dense in the workspace
  std::vector<FlagId> governing;  // the flags that govern this operation on this device
  std::vector<Unmet> unmet;
  std::vector<std::string> candidates;
};

// Immutable, without addresses; shared by the cache. Freed after its last use.
class Plan {
 public:
  virtual ~Plan() = default;
  Choice choice;
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  uint64_t workspace_bytes = 0;
  double cost_us = 0;      // a guess at its device time, for the executor
  bool exclusive = false;  // one run at a time
};

// An operand's address on the device; null for an absent or empty operand. The CPU's are host
// pointers.
using Address = void*;

// A word per operation in host-visible memory, zeroed at enqueue; whoever computes writes reason
// and place into it.
struct Fault {
  std::optional<Reason> reason;
  int64_t item = -1;   // batch item
  int64_t index = -1;  // element, row, pivot
  std::string detail;
};

enum class SlabKind { kDevice, kPinnedHost };
struct Slab {
  Address address = nullptr;
  uint64_t bytes = 0;
  SlabKind kind = SlabKind::kDevice;
};

struct DeviceInfo {
  std::string uuid;  // "cpu"
  std::string name;
  std::string isa;  // "AVX512", SM
  std::string blas_core;
  uint64_t memory_bytes = 0;
  int threads = 1;
  std::map<std::string, std::string> libraries;
};

enum class Progress { kPending, kDone, kFailed };

// A stream with its handles, workspace and staging, lent as one object.
class Slot {
 public:
  virtual ~Slot() = default;
};
struct Event {
  uint64_t value = 0;
};

// BuildPlan may be called on any thread. All else on the executor's thread (one caller at a time).
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual absl::StatusOr<Slab> MapSlab(SlabKind kind,
                                       uint64_t bytes) = 0;  // zeros. DEVICE_OUT_OF_MEMORY
  virtual void UnmapSlab(const Slab& slab) = 0;
  // Maps `bytes` from `offset` of a sealed memfd. HOST_OUT_OF_MEMORY.
  virtual absl::StatusOr<Slab> Import(const Fd& memfd, uint64_t offset, uint64_t bytes,
                                      bool writable) = 0;

  // The catalogue indices of the flags that govern this kind here: they are part of the plan key.
  virtual absl::Span<const FlagId> Governing(const OperationSpec& operation) const = 0;
  // Shapes, strides and `alignment` (log2 of each operand address's alignment, at most 6) decide;
  // no addresses. OP_UNSUPPORTED, NO_KERNEL, SIZE_TOO_LARGE, DEVICE_OUT_OF_MEMORY.
  virtual absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(const OperationSpec& operation,
                                                          const FlagValues& flags,
                                                          absl::Span<const uint8_t> alignment) = 0;

  virtual absl::StatusOr<Slot*> OpenSlot() = 0;
  // In stream order; back when enqueued or when done: callers cannot tell. `workspace` has
  // plan.workspace_bytes.
  virtual absl::Status Run(Slot& slot, const Plan& plan, absl::Span<const Address> operands,
                           Address workspace, Fault* fault) = 0;
  virtual absl::Status Copy(Slot& slot, Address to, const void* from,
                            uint64_t bytes) = 0;  // host to device
  virtual absl::Status CopyOut(Slot& slot, void* to, Address from,
                               uint64_t bytes) = 0;  // device to host
  virtual absl::Status Zero(Slot& slot, Address address, uint64_t bytes) = 0;
  virtual absl::StatusOr<Event> Record(Slot& slot) = 0;
  virtual Progress Poll(const Event& event) = 0;
  virtual absl::Status CheckHealth() = 0;  // sticky errors
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_DEVICE_H_
