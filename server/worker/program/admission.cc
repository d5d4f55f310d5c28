#include "server/worker/program/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "shared/status/macros.h"

namespace backendd::worker {
namespace {

constexpr int kThreads = 2;
constexpr size_t kAnswersKept = 256;
constexpr absl::Duration kSnapshotWait = absl::Seconds(10);

}  // namespace

Admission::Admission(Shop& shop, Executor& executor) : shop_(shop), executor_(executor) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Loop(); });
}

void Admission::Submit(std::shared_ptr<Session> session, const v1::SubmitRequest* request,
                       v1::SubmitResponse* response, absl::Duration until, Program::Done done) {
  auto program =
      std::make_unique<Program>(shop_, session, request, response, until, std::move(done));
  const uint64_t seq = request->seq();
  std::shared_ptr<Answer> repeated;
  absl::Status refused;
  {
    MutexLock lock(&session->mutex);
    refused = session->CheckOpen();
    if (refused.ok() && seq != 0 && seq != session->last_seq + 1) {
      const uint64_t ago = session->last_seq - seq;  // wraps for numbers to come
      if (seq <= session->last_seq && ago < session->answers.size()) {
        repeated = session->answers[session->answers.size() - 1 - ago];
        if (!repeated->done) {
          // The waiter owns the program that was not needed, for its `done`.
          repeated->waiters.push_back([repeat = std::shared_ptr<Program>(std::move(program))](
                                          const Answer& answer) { repeat->Repeat(answer); });
          return;
        }
      } else {
        refused = Error(Reason::kSequenceGap,
                        absl::StrCat("seq ", seq, " does not follow ", session->last_seq,
                                     "; answers are kept for the last ", session->answers.size()),
                        {{"expected", absl::StrCat(session->last_seq + 1)}});
      }
    }
    if (refused.ok() && repeated == nullptr) refused = session->Enter();
    if (refused.ok() && repeated == nullptr) {
      if (seq != 0) {
        session->last_seq = seq;
        session->answers.push_back(std::make_shared<Answer>());
        if (session->answers.size() > kAnswersKept) session->answers.pop_front();
        program->set_answer(session->answers.back());
      }
      if (session->admitting) {
        session->waiting.push_back(std::move(program));
        return;
      }
      session->admitting = true;
    }
  }
  if (!refused.ok()) return program->Repeat({true, refused});
  if (repeated != nullptr) return program->Repeat(*repeated);
  Advance(std::move(program), /*may_wait=*/false);
}

absl::Status Admission::Admit(Program& program, bool may_wait, bool* wait) {
  if (!program.admitted()) {
    const uint64_t have = shop_.flags.revision();
    if (program.min_revision() > have) {
      const absl::Duration now = shop_.clock.Steady();
      if (now < program.snapshot_until(kSnapshotWait)) {
        *wait = true;
        return absl::OkStatus();
      }
      return Error(
          Reason::kSnapshotBehind,
          absl::StrCat("the worker has revision ", have, ", not yet ", program.min_revision()),
          {{"have", absl::StrCat(have)}, {"want", absl::StrCat(program.min_revision())}});
    }
    RETURN_IF_ERROR(program.Admit());
  }
  ASSIGN_OR_RETURN(const bool planned, program.Plans(may_wait));
  *wait = !planned;
  if (!planned) return absl::OkStatus();
  return program.Settle();
}

void Admission::Advance(std::unique_ptr<Program> program, bool may_wait) {
  const std::shared_ptr<Session> session = program->session();
  bool wait = false;
  const absl::Status status = Admit(*program, may_wait, &wait);
  if (status.ok() && wait) return Continue(std::move(program));
  if (!status.ok()) {
    program->Refuse(status);
  } else if (program->explain()) {
    program->Explain();
  } else {
    if (program->early()) program->Accept();
    std::unique_ptr<Work> work = std::move(program);
    const bool run = executor_.Enter(session->lane, work);
    // Its place in the queue is taken: the next one may be looked at.
    Next(*session);
    if (run) executor_.RunInline(std::move(work));
    return;
  }
  Next(*session);
}

void Admission::Next(Session& session) {
  std::unique_ptr<Program> next;
  {
    MutexLock lock(&session.mutex);
    session.admitting = !session.waiting.empty();
    if (!session.admitting) return;
    next = std::move(session.waiting.front());
    session.waiting.pop_front();
  }
  Continue(std::move(next));
}

void Admission::Continue(std::unique_ptr<Program> program) {
  {
    MutexLock lock(&mutex_);
    if (!stop_) {
      if (!program->admitted() && program->min_revision() > shop_.flags.revision()) {
        const absl::Duration until = program->snapshot_until(kSnapshotWait);
        parked_.push_back({std::move(program), until});
      } else {
        programs_.push_back(std::move(program));
      }
      wake_.Signal();
      return;
    }
  }
  program->Refuse(Error(Reason::kDraining, "the worker ends"));
}

absl::Duration Admission::Unpark() {
  const uint64_t revision = shop_.flags.revision();
  const absl::Duration now = shop_.clock.Steady();
  absl::Duration left = absl::InfiniteDuration();
  for (auto parked = parked_.begin(); parked != parked_.end();) {
    if (parked->program->min_revision() <= revision || parked->until <= now) {
      programs_.push_back(std::move(parked->program));
      parked = parked_.erase(parked);
    } else {
      left = std::min(left, parked->until - now);
      ++parked;
    }
  }
  return left;
}

void Admission::Loop() {
  while (true) {
    std::unique_ptr<Program> program;
    std::function<void()> task;
    {
      MutexLock lock(&mutex_);
      while (true) {
        const absl::Duration left = Unpark();
        if (stop_ || !programs_.empty() || !tasks_.empty()) break;
        if (left == absl::InfiniteDuration()) {
          wake_.Wait(&mutex_);
        } else {
          wake_.WaitWithTimeout(&mutex_, left);
        }
      }
      if (!tasks_.empty()) {
        task = std::move(tasks_.front());
        tasks_.pop_front();
      } else if (!programs_.empty()) {
        program = std::move(programs_.front());
        programs_.pop_front();
      } else {
        return;  // stopped, and nothing is left
      }
    }
    if (task) task();
    if (program != nullptr) Advance(std::move(program), /*may_wait=*/true);
  }
}

void Admission::RevisionChanged() {
  MutexLock lock(&mutex_);
  if (!parked_.empty()) wake_.SignalAll();
}

void Admission::Post(std::function<void()> task) {
  {
    MutexLock lock(&mutex_);
    if (!stop_) {
      tasks_.push_back(std::move(task));
      wake_.Signal();
      return;
    }
  }
  task();
}

void Admission::Drop(Session& session) {
  std::deque<std::unique_ptr<Program>> programs;
  {
    MutexLock lock(&session.mutex);
    programs.swap(session.waiting);
  }
  {
    MutexLock lock(&mutex_);
    for (auto parked = parked_.begin(); parked != parked_.end();) {
      if (parked->program->session().get() != &session) {
        ++parked;
        continue;
      }
      programs.push_back(std::move(parked->program));
      parked = parked_.erase(parked);
    }
  }
  for (std::unique_ptr<Program>& program : programs)
    program->Refuse(UnknownSession(session.id.value()));
  for (std::unique_ptr<Work>& work : executor_.Drop(session.lane))
    work->Refuse(UnknownSession(session.id.value()));
}

void Admission::Stop() {
  std::vector<Parked> parked;
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    parked.swap(parked_);
    wake_.SignalAll();
  }
  for (Parked& each : parked) each.program->Refuse(Error(Reason::kDraining, "the worker ends"));
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace backendd::worker
