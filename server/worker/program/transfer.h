// Bytes between a message and a buffer, in their place among the session's programs.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_TRANSFER_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_TRANSFER_H_

#include <functional>
#include <memory>
#include <string>

#include "server/worker/program/executor.h"
#include "server/worker/program/program.h"
#include "server/worker/program/work.h"

namespace backendd::worker {

inline constexpr uint64_t kMaxTransferBytes = 1 << 20;

class Transfer final : public Work {
 public:
  using Done = std::function<void(const absl::Status&)>;
  struct Range {
    uint64_t buffer, offset, length;
  };

  // Writes `in` to the range, or reads the range into `out`; one of them is null. Both live until
  // `done` has run, once. Errors: SESSION_UNKNOWN, QUOTA_EXCEEDED, BUFFER_UNKNOWN,
  // BUFFER_RELEASING, BUFFER_POISONED (reads), SHAPE_INVALID, SIZE_TOO_LARGE, ARGUMENT_INVALID.
  static void Run(Shop& shop, Executor& executor, std::shared_ptr<Session> session, Range range,
                  const std::string* in, std::string* out, Done done);

  double cost_us() const override { return range_.length / 5000.0; }
  void Enqueue(Device& device, Slot& slot, Address) override;
  void Finish() override;
  void Refuse(const absl::Status& why) override;

 private:
  Transfer(Shop& shop, std::shared_ptr<Session> session, Range range, const std::string* in,
           std::string* out, Done done)
      : Work(std::move(session)),
        shop_(shop),
        range_(range),
        in_(in),
        out_(out),
        done_(std::move(done)) {}
  absl::Status Pin();
  void End(const absl::Status& status);

  Shop& shop_;
  const Range range_;
  const std::string* const in_;
  std::string* const out_;
  Done done_;
  Buffer* buffer_ = nullptr;
  absl::Status status_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_TRANSFER_H_
