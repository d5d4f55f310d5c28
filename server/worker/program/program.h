// One submitted program on its way: admitted whole or refused, run, answered once.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_PROGRAM_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/worker/program/flag_table.h"
#include "server/worker/program/listing.h"
#include "server/worker/program/work.h"
#include "server/worker/session/session.h"
#include "shared/clock.h"

namespace backendd::worker {

// What programs share. Owned by the worker, which outlives them.
struct Shop {
  Device& device;
  PlanCache& plans;
  FlagTable& flags;
  SessionTable& sessions;
  const Clock& clock;
  uint64_t device_epoch = 0;
  uint64_t workspace_cap = 0;
  // Programs by their end.
  std::atomic<uint64_t> succeeded{0}, failed{0}, refused{0};
};

// Owned by whoever works on it: admission, then the executor. `request` and `response` live until
// `done` was called.
class Program final : public Work {
 public:
  using Done = std::function<void(const absl::Status&)>;
  Program(Shop& shop, std::shared_ptr<Session> session, const v1::SubmitRequest* request,
          v1::SubmitResponse* response, absl::Duration until, Done done);

  // Admission, in this order, one thread at a time. Admit looks at everything that needs no plan,
  // and pins flags and buffers. Errors: all of data-plane's admission.
  absl::Status Admit();
  // True: every operation has its plan. Missing ones are built only if told so; else false.
  absl::StatusOr<bool> Plans(bool build);
  // Strictness, workspace, deadline.
  absl::Status Settle();

  bool admitted() const { return pinned_; }
  uint64_t min_revision() const { return min_revision_; }
  // Until when a snapshot is waited for; `most` where the client set no deadline.
  absl::Duration snapshot_until(absl::Duration most) const {
    return until_ == absl::InfiniteDuration() ? arrived_ + most : until_;
  }
  bool explain() const { return mode_ == v1::SUBMIT_MODE_EXPLAIN; }
  bool early() const { return mode_ == v1::SUBMIT_MODE_ACCEPTED; }
  void Accept();   // answers at admission; what becomes of it is seen in its buffers
  void Explain();  // answers with stamps, runs nothing
  // Answers with what another program with its number was told, or a refusal at the door.
  void Repeat(const Answer& answer);
  void set_answer(std::shared_ptr<Answer> answer) { answer_ = std::move(answer); }

  double cost_us() const override { return cost_us_; }
  uint64_t workspace_bytes() const override { return workspace_bytes_; }
  uint64_t revision() const override { return flags_.revision; }
  absl::Status Start() override;
  void Enqueue(Device& device, Slot& slot, Address workspace) override;
  void Finish() override;
  void Refuse(const absl::Status& why) override;

 private:
  absl::Status FindListing();
  absl::Status PinBuffers();
  absl::Status PlanStep(Step& step, bool build, bool* missing);
  // The first step that failed, -1 for none; heals what the others wrote, poisons what was not.
  int Judge(absl::Status* cause);
  void FillStamp();
  void Reply(const absl::Status& status);
  void Unpin();

  Shop& shop_;
  const v1::SubmitRequest* request_;  // null once an early answer is out
  v1::SubmitResponse* response_;
  v1::SubmitResponse own_response_;  // after an early answer
  Done done_;
  std::shared_ptr<Answer> answer_;  // of a numbered program

  const uint64_t seq_;
  const v1::SubmitMode mode_;
  const v1::StampDetail detail_;
  const uint64_t min_revision_;
  const bool strict_;
  const absl::Duration arrived_;
  const absl::Duration until_;  // steady; infinite: no deadline
  absl::Duration admitted_, plan_time_, started_;

  std::shared_ptr<const Listing> listing_;
  std::vector<Step> steps_;
  PinnedFlags flags_;
  bool pinned_ = false;
  double cost_us_ = 0;
  uint64_t workspace_bytes_ = 0;
  std::vector<std::string> read_bytes_;  // in the order of the reads
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_PROGRAM_H_
