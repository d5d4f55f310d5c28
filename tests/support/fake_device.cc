#include "tests/support/fake_device.h"

#include <sys/mman.h>

#include <cstring>

namespace backendd::worker {
namespace {

struct FakePlan final : Plan {
  OperationSpec operation;
};

}  // namespace

FakeDevice::FakeDevice() {
  info_.uuid = "cpu";
  info_.name = "a fake";
  info_.isa = "NONE";
  info_.memory_bytes = uint64_t{1} << 32;
  info_.libraries = {{"fake", "1"}};
}

void FakeDevice::FailRun(int nth, Reason reason, bool as_fault) {
  fail_reason_ = reason;
  fail_as_fault_ = as_fault;
  fail_in_ = nth;
}
void FakeDevice::Hold() { held_ = true; }
void FakeDevice::Release() { held_ = false; }

absl::StatusOr<Slab> FakeDevice::MapSlab(SlabKind kind, uint64_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return Error(Reason::kDeviceOutOfMemory, "no memory");
  mapped_ += bytes;
  return Slab{at, bytes, kind};
}
void FakeDevice::UnmapSlab(const Slab& slab) {
  munmap(slab.address, slab.bytes);
  mapped_ -= slab.bytes;
}
absl::StatusOr<Slab> FakeDevice::Import(const Fd& memfd, uint64_t offset, uint64_t bytes,
                                        bool writable) {
  void* const at = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                        writable ? MAP_SHARED : MAP_PRIVATE, memfd.get(), offset);
  if (at == MAP_FAILED) return Error(Reason::kHostOutOfMemory, "cannot be mapped");
  mapped_ += bytes;
  return Slab{at, bytes, SlabKind::kPinnedHost};
}

absl::StatusOr<std::unique_ptr<Plan>> FakeDevice::BuildPlan(const OperationSpec& operation,
                                                            const FlagValues& flags,
                                                            absl::Span<const uint8_t>) {
  ++builds_;
  if (build) return build(operation, flags);
  auto plan = std::make_unique<FakePlan>();
  plan->operation = operation;
  plan->host_bytes = plan_bytes;
  plan->cost_us = cost_us;
  plan->workspace_bytes = workspace_bytes;
  plan->choice.library = "fake";
  plan->choice.governing = governing;
  return std::unique_ptr<Plan>(std::move(plan));
}

absl::Status FakeDevice::Run(Slot&, const Plan& plan, absl::Span<const Address> operands, Address,
                             Fault* fault) {
  if (inside_.fetch_add(1) != 0) overlapped_ = true;
  ++runs_;
  absl::Status status;
  if (fail_in_ > 0 && --fail_in_ == 0) {
    if (fail_as_fault_) {
      fault->reason = fail_reason_;
      fault->index = 7;
      fault->detail = "the fake was told to fail";
    } else {
      status = Error(fail_reason_, "the fake was told to fail");
    }
  } else if (const auto* fake = dynamic_cast<const FakePlan*>(&plan)) {
    const OperationSpec& spec = fake->operation;
    if (spec.kind == OpKind::kFill && operands[0] != nullptr) {
      const double value = std::get<FillAttributes>(spec.attributes).value.real();
      for (int64_t i = 0; i < spec.operands[0].type.elements(); ++i) {
        if (spec.operands[0].type.dtype == DType::kF32) {
          static_cast<float*>(operands[0])[i] = static_cast<float>(value);
        } else if (spec.operands[0].type.dtype == DType::kF64) {
          static_cast<double*>(operands[0])[i] = value;
        }
      }
    } else if (spec.kind == OpKind::kUnary && operands[0] != nullptr) {
      for (int64_t i = 0; i < spec.operands[0].type.elements(); ++i)
        static_cast<float*>(operands[1])[i] = -static_cast<const float*>(operands[0])[i];
    }
  }
  inside_.fetch_sub(1);
  return status;
}

absl::Status FakeDevice::Copy(Slot&, Address to, const void* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}
absl::Status FakeDevice::CopyOut(Slot&, void* to, Address from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}
absl::Status FakeDevice::Zero(Slot&, Address address, uint64_t bytes) {
  std::memset(address, 0, bytes);
  return absl::OkStatus();
}

}  // namespace backendd::worker
