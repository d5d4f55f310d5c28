// One device's process: the rooms of the data plane wired together, steered by the daemon.
#ifndef BACKENDD_SERVER_WORKER_WORKER_H_
#define BACKENDD_SERVER_WORKER_WORKER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backendd/control/v1/control.pb.h"
#include "server/control/control_link.h"
#include "server/listener/listener.h"
#include "server/worker/buffer/fd_server.h"
#include "server/worker/program/admission.h"
#include "server/worker/rpc/compute_service.h"

namespace backendd::worker {

// Owned by main. Run is the control thread: it applies what the daemon says and never computes.
// Ends when the link does, or after a drain.
class Worker {
 public:
  struct Options {
    Fd control, listener, fd_listener;
    uint64_t device_epoch = 1;
    bool reflection = true;
    Executor::Options executor;
  };
  static absl::StatusOr<std::unique_ptr<Worker>> Create(Options options,
                                                        std::unique_ptr<Device> device,
                                                        const Clock& clock);
  ~Worker();

  // Says hello, then serves. OK after a drain; else why the link ended.
  absl::Status Run();

 private:
  Worker(Options options, std::unique_ptr<Device> device, const Clock& clock);
  absl::Status Init();
  void Apply(const control::v1::Command& command);
  control::v1::Status Status() const;
  void Report(const control::v1::Report& report);

  Options options_;
  const std::unique_ptr<Device> device_;
  PlanCache plans_;
  Memory memory_;
  FlagTable flags_;
  SessionTable sessions_;
  Shop shop_;
  ControlLink link_;
  // Threads: each is stopped before what it uses goes.
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<ComputeService> service_;
  std::unique_ptr<FdServer> fd_server_;
  std::unique_ptr<Listener> listener_;
  bool serving_ = false;
  bool drained_ = false;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_WORKER_H_
