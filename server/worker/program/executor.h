// Runs admitted work on the device, one caller at a time.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_EXECUTOR_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/worker/buffer/memory.h"
#include "server/worker/device/device.h"
#include "server/worker/program/work.h"
#include "shared/sync.h"

namespace backendd::worker {

// A session's queue; its work runs in order. Lanes take turns. Lives in the session, which queued
// work keeps alive; touched by the executor alone.
struct Lane {
  std::deque<std::unique_ptr<Work>> queue;
  bool listed = false;  // in ready_
};

// Owned by the worker. Short work that finds the executor idle runs on the thread that brings it,
// all else on the executor's own; either way only the holder of `running_` calls the device.
class Executor {
 public:
  struct Options {
    double inline_us = 50;  // work up to this cost runs on the caller's thread
    size_t in_flight = 12;  // enqueued and not done, on a device that runs behind
    std::function<void(const absl::Status&)> lost;  // the device is broken for good
  };
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Device& device, Memory& memory,
                                                          Options options);
  ~Executor();

  // True: the executor is the caller's, who must call RunInline with the work now. False: queued.
  bool Enter(Lane& lane, std::unique_ptr<Work>& work);
  void RunInline(std::unique_ptr<Work> work);
  // What has not started; the caller refuses it.
  std::vector<std::unique_ptr<Work>> Drop(Lane& lane);

  uint64_t oldest_revision() const;  // of admitted programs that are not done; 0: none
  bool idle() const;
  void Stop();  // refuses what is queued, waits for what runs

 private:
  Executor(Device& device, Memory& memory, Options options, Slot* slot);
  struct Flight {
    std::unique_ptr<Work> work;
    Event event;
  };
  void Loop();
  void Launch(std::unique_ptr<Work> work);  // by the holder of running_
  bool Reap();                              // finishes the oldest; false: it is not done
  void Conclude(std::unique_ptr<Work> work);
  absl::Status Reserve(uint64_t workspace_bytes);
  std::unique_ptr<Work> Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device& device_;
  Memory& memory_;
  const Options options_;
  Slot* const slot_;

  // Of the holder of running_.
  Slab workspace_;
  std::deque<Flight> in_flight_;
  std::atomic<size_t> flying_ = 0;  // in_flight_.size(), for others

  mutable Mutex mutex_;
  CondVar wake_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Lane*> ready_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> revisions_ ABSL_GUARDED_BY(mutex_);  // of what runs, few
  std::thread thread_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_EXECUTOR_H_
