// What the control plane asks of the workers. WorkerSupervisor implements it over the control
// links; tests use a fake with held acknowledgements.
#ifndef BACKENDD_SERVER_NODE_COMMIT_WORKERS_H_
#define BACKENDD_SERVER_NODE_COMMIT_WORKERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backendd/control/v1/control.pb.h"
#include "backendd/v1/device.pb.h"
#include "server/node/flags/layer.h"

namespace backendd::node {

class Workers {
 public:
  // Called by the supervisor's thread, never with its lock held.
  class Observer {
   public:
    virtual ~Observer() = default;
    // A worker said hello (state STARTING, with libraries and ISA). The observer takes the node's
    // lock and calls Attach.
    virtual void OnWorkerReady(const v1::Device& device) = 0;
    // A device's state or epoch changed (SERVING, LOST, DOWN, ...).
    virtual void OnDeviceChanged(const v1::Device& device, uint64_t old_epoch) = 0;
    // A session's last byte on that device is freed.
    virtual void OnSessionFreed(const DeviceId& device, uint64_t session, uint64_t bytes) = 0;
  };

  virtual ~Workers() = default;

  // Sends `make(device)` to every attached worker, in call order. `acknowledged` runs once, in call
  // order, when every worker that was attached has put it in force or is gone (one silent for 2 s
  // is ended and counts as gone). It runs on the supervisor's thread without locks; at once, on the
  // caller's thread, where no worker is attached. Safe under the node's lock (lock order: node,
  // then supervisor).
  virtual void Send(absl::FunctionRef<control::v1::Command(const DeviceId&)> make,
                    std::function<void()> acknowledged) = 0;
  // The first, complete command of a worker that said hello; from here on Send reaches it. Called
  // under the node's lock.
  virtual void Attach(const DeviceId& device, control::v1::Command complete) = 0;
  // Every device of the node with its worker's state, "cpu" first; sockets and epochs filled in.
  virtual std::vector<v1::Device> Devices() const = 0;
  // Plans in the device's FFT cache, as last reported; nullopt: nothing was yet.
  virtual std::optional<uint64_t> FftPlans(const DeviceId&) const { return std::nullopt; }
  // Buffer bytes by session and device, as last reported.
  virtual std::map<DeviceId, uint64_t> SessionBytes(uint64_t session) const = 0;
};

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_COMMIT_WORKERS_H_
