// A device of plain host memory whose completions a test can hold, release and make fail. It
// computes fill (f32 and f64) and unary neg, copies rows, and knows sizes of its plans; enough for
// what is written above the seam.
#ifndef BACKENDD_TESTS_SUPPORT_FAKE_DEVICE_H_
#define BACKENDD_TESTS_SUPPORT_FAKE_DEVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "server/worker/device/device.h"
#include "shared/sync.h"

namespace backendd::worker {

class FakeDevice final : public Device {
 public:
  FakeDevice();

  // What BuildPlan gives; tests set them before the first program.
  uint64_t plan_bytes = 1 << 20;
  double cost_us = 1;
  uint64_t workspace_bytes = 0;
  std::vector<FlagId> governing;
  // Called in place of the plain plan, where set.
  std::function<absl::StatusOr<std::unique_ptr<Plan>>(const OperationSpec&, const FlagValues&)>
      build;
  // The nth Run from now on (1: the next) fails with this reason, once.
  void FailRun(int nth, Reason reason, bool as_fault);
  // No event completes until Release.
  void Hold();
  void Release();

  int runs() const { return runs_; }
  int builds() const { return builds_; }
  uint64_t mapped() const { return mapped_; }
  bool overlapped() const { return overlapped_; }  // two threads were in the device at once

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<Slab> MapSlab(SlabKind kind, uint64_t bytes) override;
  void UnmapSlab(const Slab& slab) override;
  absl::StatusOr<Slab> Import(const Fd& memfd, uint64_t offset, uint64_t bytes,
                              bool writable) override;
  absl::Span<const FlagId> Governing(const OperationSpec&) const override { return governing; }
  absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(const OperationSpec& operation,
                                                  const FlagValues& flags,
                                                  absl::Span<const uint8_t> alignment) override;
  absl::StatusOr<Slot*> OpenSlot() override { return &slot_; }
  absl::Status Run(Slot& slot, const Plan& plan, absl::Span<const Address> operands,
                   Address workspace, Fault* fault) override;
  absl::Status Copy(Slot& slot, Address to, const void* from, uint64_t bytes) override;
  absl::Status CopyOut(Slot& slot, void* to, Address from, uint64_t bytes) override;
  absl::Status Zero(Slot& slot, Address address, uint64_t bytes) override;
  absl::StatusOr<Event> Record(Slot& slot) override { return Event{++recorded_}; }
  Progress Poll(const Event&) override { return held_ ? Progress::kPending : Progress::kDone; }
  absl::Status CheckHealth() override { return absl::OkStatus(); }

 private:
  DeviceInfo info_;
  Slot slot_;
  std::atomic<int> runs_ = 0, builds_ = 0, inside_ = 0, fail_in_ = 0;
  std::atomic<uint64_t> mapped_ = 0, recorded_ = 0;
  std::atomic<bool> held_ = false, overlapped_ = false;
  Reason fail_reason_ = Reason::kIndexInvalid;
  bool fail_as_fault_ = true;
};

}  // namespace backendd::worker

#endif  // BACKENDD_TESTS_SUPPORT_FAKE_DEVICE_H_
