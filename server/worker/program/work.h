// What the executor runs: a program, or bytes to or from a buffer.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_WORK_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_WORK_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/worker/device/device.h"

namespace backendd::worker {

class Session;

// Admitted work of a session. Owned by the executor from Enter() on; ends with exactly one of
// Finish() and Refuse(), which answer the client.
class Work {
 public:
  explicit Work(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  virtual ~Work() = default;

  const std::shared_ptr<Session>& session() const { return session_; }
  virtual double cost_us() const = 0;  // a guess
  virtual uint64_t workspace_bytes() const { return 0; }
  virtual uint64_t revision() const { return 0; }  // that it is pinned to; 0: none

  // Asked right before the start: whether it may still begin.
  virtual absl::Status Start() { return absl::OkStatus(); }
  virtual void Enqueue(Device& device, Slot& slot, Address workspace) = 0;
  virtual void Finish() = 0;  // after its event
  virtual void Refuse(const absl::Status& why) = 0;

 private:
  const std::shared_ptr<Session> session_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_WORK_H_
