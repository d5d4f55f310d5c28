// Takes programs in: numbering, order, waiting for a revision, plans; then hands them to the
// executor.
#ifndef BACKENDD_SERVER_WORKER_PROGRAM_ADMISSION_H_
#define BACKENDD_SERVER_WORKER_PROGRAM_ADMISSION_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "server/worker/program/executor.h"
#include "server/worker/program/program.h"
#include "shared/sync.h"

namespace backendd::worker {

// Owned by the worker. Submit by any thread and never waits: what must wait (for a revision, for a
// plan to be built) goes on with one of two threads of its own. Programs of one session are
// admitted one after another, in the order in which they came.
class Admission {
 public:
  Admission(Shop& shop, Executor& executor);
  ~Admission() { Stop(); }

  // `done` runs once, on any thread, with what data-plane's Submit answers; `request` and
  // `response` live until then.
  void Submit(std::shared_ptr<Session> session, const v1::SubmitRequest* request,
              v1::SubmitResponse* response, absl::Duration until, Program::Done done);

  void RevisionChanged();                 // the control thread, after a commit
  void Post(std::function<void()> task);  // runs it on one of the threads
  // Refuses what of an ended session has not started.
  void Drop(Session& session);
  void Stop();  // refuses what waits

 private:
  void Advance(std::unique_ptr<Program> program, bool may_wait);
  absl::Status Admit(Program& program, bool may_wait, bool* wait);
  void Next(Session& session);
  void Continue(std::unique_ptr<Program> program);
  void Loop();
  // Moves what need not wait any longer to tasks_; how long the rest may still wait.
  absl::Duration Unpark() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Parked {
    std::unique_ptr<Program> program;
    absl::Duration until;
  };

  Shop& shop_;
  Executor& executor_;
  Mutex mutex_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<Program>> programs_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Parked> parked_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_PROGRAM_ADMISSION_H_
