// Starts, watches, feeds and restarts the node's workers.
#ifndef BACKENDD_SERVER_NODE_WORKERS_WORKER_SUPERVISOR_H_
#define BACKENDD_SERVER_NODE_WORKERS_WORKER_SUPERVISOR_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/control/control_link.h"
#include "server/node/commit/workers.h"
#include "server/node/workers/cpu_kernels.h"
#include "server/node/workers/restart_policy.h"
#include "shared/clock.h"
#include "shared/fd/fd.h"
#include "shared/sync.h"

namespace backendd::node {

// Owned by the daemon. One thread does everything but Send and Attach, which any thread may call:
// it spawns (a worker dies with the thread that spawned it), reads the links, sees deaths, keeps
// the time. It holds its lock only to change its own state; observer and acknowledgements run
// without it. Ends with Stop, which ends the workers too.
class WorkerSupervisor final : public Workers {
 public:
  struct DeviceOptions {
    DeviceId id = "cpu";
    std::string binary;     // absolute
    std::string socket;     // absolute: the worker's gRPC listener
    std::string fd_socket;  // absolute: its fd channel
  };
  struct Options {
    std::vector<DeviceOptions> devices;
    std::optional<gid_t> group;  // of the sockets
    Variables variables;         // of every worker: WorkerEnvironment
    RestartPolicy::Options restart;
    absl::Duration command_silence = absl::Seconds(2);  // without an acknowledgement
    absl::Duration start_silence = absl::Seconds(30);   // without a hello
    absl::Duration ping_every = absl::Seconds(1);
    const Clock* clock = nullptr;
  };

  // Binds the workers' sockets, which stay open over every restart: clients wait in the backlog.
  static absl::StatusOr<std::unique_ptr<WorkerSupervisor>> Create(Options options);
  ~WorkerSupervisor() override;

  void Start(Observer* observer);
  // Workers finish what runs and exit; those left after `grace` are killed. Every acknowledgement
  // has run when it returns.
  void Stop(absl::Duration grace);
  void RemoveSockets();  // the files; at exit

  void Send(absl::FunctionRef<control::v1::Command(const DeviceId&)> make,
            std::function<void()> acknowledged) override;
  void Attach(const DeviceId& device, control::v1::Command complete) override;
  std::vector<v1::Device> Devices() const override;
  std::optional<uint64_t> FftPlans(const DeviceId& device) const override;
  std::map<DeviceId, uint64_t> SessionBytes(uint64_t session) const override;

 private:
  struct Sent {
    uint64_t sequence;
    uint64_t revision;  // 0: no snapshot in it
    absl::Duration at;
  };
  struct Worker {
    explicit Worker(RestartPolicy::Options restart) : policy(restart) {}
    DeviceOptions options;
    Fd listener, fd_listener;
    RestartPolicy policy;
    v1::Device device;
    pid_t pid = 0;  // 0: no process
    Fd pidfd;
    std::unique_ptr<ControlLink> link;
    bool link_ended = false;  // the process is being killed
    std::string why_killed;   // ours; empty: its own death
    bool attached = false;
    uint64_t attach_sequence = 0;
    uint64_t sequence = 0;      // last sent
    uint64_t acknowledged = 0;  // last in force
    uint64_t served_epoch = 0;  // the last one that served
    std::deque<Sent> unacknowledged;
    std::set<uint64_t> sessions;
    std::map<uint64_t, uint64_t> session_bytes;
    std::optional<uint64_t> fft_plans;
    absl::Duration start_at;  // where no process is
    absl::Duration started, serving_since, pinged;
  };
  // What an acknowledgement waits for: for each worker its epoch and the sequence.
  struct Pending {
    struct Wait {
      const Worker* worker;
      uint64_t epoch;
      uint64_t sequence;
    };
    std::vector<Wait> waits;
    std::function<void()> acknowledged;
  };
  using Calls = std::vector<std::function<void()>>;  // to be made without the lock, in order

  explicit WorkerSupervisor(Options options);
  void Run();
  void HandleReport(Worker& worker, absl::string_view bytes);
  void StartWorkerLocked(Worker& worker, Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BuryLocked(Worker& worker, const std::string& how, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KillLocked(Worker& worker, std::string why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepTimeLocked(Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration NextTimerLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendLocked(Worker& worker, control::v1::Command command)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangeLocked(Worker& worker, v1::DeviceState state, std::string detail, uint64_t old_epoch,
                    Calls* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs what is due, without the lock; then the acknowledgements whose workers are all done.
  void Deliver(Calls calls) ABSL_LOCKS_EXCLUDED(mutex_);
  void Wake();

  const Options options_;
  Observer* observer_ = nullptr;  // set before the thread starts
  Fd wake_;
  std::thread thread_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the vector never changes after Create
  std::deque<Pending> pending_ ABSL_GUARDED_BY(mutex_);
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration stop_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_WORKERS_WORKER_SUPERVISOR_H_
