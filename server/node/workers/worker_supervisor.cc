#include "server/node/workers/worker_supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/control/worker_start.h"
#include "server/listener/socket.h"
#include "server/node/workers/spawn.h"
#include "shared/fd/pidfd.h"
#include "shared/log/log.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::node {

WorkerSupervisor::WorkerSupervisor(Options options)
    : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

absl::StatusOr<std::unique_ptr<WorkerSupervisor>> WorkerSupervisor::Create(Options options) {
  auto supervisor = std::unique_ptr<WorkerSupervisor>(new WorkerSupervisor(std::move(options)));
  for (const DeviceOptions& device : supervisor->options_.devices) {
    auto worker = std::make_unique<Worker>(supervisor->options_.restart);
    worker->options = device;
    ASSIGN_OR_RETURN(worker->listener,
                     BindSocket(device.socket, SOCK_STREAM, supervisor->options_.group));
    ASSIGN_OR_RETURN(worker->fd_listener,
                     BindSocket(device.fd_socket, SOCK_SEQPACKET, supervisor->options_.group));
    worker->device.set_device(device.id);
    worker->device.set_state(v1::DEVICE_STATE_STARTING);
    worker->device.set_socket(device.socket);
    worker->device.set_fd_socket(device.fd_socket);
    supervisor->workers_.push_back(std::move(worker));
  }
  return supervisor;
}

WorkerSupervisor::~WorkerSupervisor() { Stop(absl::ZeroDuration()); }

void WorkerSupervisor::Start(Observer* observer) {
  observer_ = observer;
  thread_ = std::thread([this] { Run(); });
}

void WorkerSupervisor::Stop(absl::Duration grace) {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_at_ = options_.clock->Steady() + grace;
    for (const auto& worker : workers_) {
      if (worker->link == nullptr) continue;
      control::v1::Command command;
      command.set_drain(true);
      SendLocked(*worker, std::move(command));
    }
  }
  Wake();
  thread_.join();
}

void WorkerSupervisor::RemoveSockets() {
  for (const DeviceOptions& device : options_.devices) {
    unlink(device.socket.c_str());
    unlink(device.fd_socket.c_str());
  }
}

void WorkerSupervisor::Wake() { eventfd_write(wake_.get(), 1); }

void WorkerSupervisor::Send(absl::FunctionRef<control::v1::Command(const DeviceId&)> make,
                            std::function<void()> acknowledged) {
  {
    MutexLock lock(&mutex_);
    Pending pending;
    for (const auto& worker : workers_) {
      if (!worker->attached) continue;
      SendLocked(*worker, make(worker->options.id));
      pending.waits.push_back({worker.get(), worker->device.epoch(), worker->sequence});
    }
    // Call order holds also where nobody is attached any more but earlier callbacks are still due.
    if (!pending.waits.empty() || !pending_.empty() || delivering_) {
      const bool due = pending.waits.empty();
      pending.acknowledged = std::move(acknowledged);
      pending_.push_back(std::move(pending));
      if (due) Wake();
      return;
    }
  }
  acknowledged();
}

void WorkerSupervisor::Attach(const DeviceId& device, control::v1::Command complete) {
  MutexLock lock(&mutex_);
  for (const auto& worker : workers_) {
    if (worker->options.id != device || worker->link == nullptr || worker->link_ended) continue;
    SendLocked(*worker, std::move(complete));
    worker->attached = true;
    worker->attach_sequence = worker->sequence;
  }
}

std::vector<v1::Device> WorkerSupervisor::Devices() const {
  MutexLock lock(&mutex_);
  std::vector<v1::Device> devices;
  for (const auto& worker : workers_) {
    devices.push_back(worker->device);
    devices.back().set_sessions(static_cast<int>(worker->sessions.size()));
  }
  return devices;
}

std::optional<uint64_t> WorkerSupervisor::FftPlans(const DeviceId& device) const {
  MutexLock lock(&mutex_);
  for (const auto& worker : workers_)
    if (worker->options.id == device) return worker->fft_plans;
  return std::nullopt;
}

std::map<DeviceId, uint64_t> WorkerSupervisor::SessionBytes(uint64_t session) const {
  MutexLock lock(&mutex_);
  std::map<DeviceId, uint64_t> bytes;
  for (const auto& worker : workers_) {
    const auto found = worker->session_bytes.find(session);
    if (found != worker->session_bytes.end()) bytes[worker->options.id] = found->second;
  }
  return bytes;
}

void WorkerSupervisor::SendLocked(Worker& worker, control::v1::Command command) {
  command.set_sequence(++worker.sequence);
  worker.unacknowledged.push_back(
      {worker.sequence, command.snapshot().revision(), options_.clock->Steady()});
  for (const auto& grant : command.grants()) worker.sessions.insert(grant.session_id());
  for (const auto& end : command.ends()) worker.sessions.erase(end.session_id());
  if (absl::Status sent = worker.link->Send(command); !sent.ok())
    KillLocked(worker, Str(sent.message()));
}

void WorkerSupervisor::Run() {
  while (true) {
    std::vector<pollfd> waiting = {{wake_.get(), POLLIN, 0}};
    std::vector<Worker*> live;  // three entries of `waiting` each
    int timeout;
    {
      MutexLock lock(&mutex_);
      for (const auto& worker : workers_) {
        if (worker->pid == 0) continue;
        live.push_back(worker.get());
        waiting.push_back({worker->pidfd.get(), POLLIN, 0});
        waiting.push_back(
            {worker->link_ended ? -1 : worker->link->fd(), worker->link->Events(), 0});
        waiting.push_back({worker->link_ended ? -1 : worker->link->wake_fd(), POLLIN, 0});
      }
      if (stopping_ && live.empty()) break;
      const absl::Duration left = NextTimerLocked() - options_.clock->Steady();
      timeout = static_cast<int>(std::clamp<int64_t>(
          absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 0, 60'000));
    }
    poll(waiting.data(), waiting.size(), timeout);
    eventfd_t ignored;
    eventfd_read(wake_.get(), &ignored);

    // What a worker said is heard before the time is looked at: a daemon that was stopped for a
    // while must not take its own silence for the worker's.
    for (size_t i = 0; i < live.size(); ++i) {
      Worker& worker = *live[i];
      if (waiting[2 + 3 * i].revents == 0 && waiting[3 + 3 * i].revents == 0) continue;
      const absl::Status status =
          worker.link->Serve([&](absl::string_view bytes) { HandleReport(worker, bytes); });
      if (status.ok()) continue;
      MutexLock lock(&mutex_);
      KillLocked(worker, stopping_ ? "" : Str(status.message()));
    }
    Calls calls;
    {
      MutexLock lock(&mutex_);
      for (size_t i = 0; i < live.size(); ++i)
        if (waiting[1 + 3 * i].revents != 0) BuryLocked(*live[i], Reap(live[i]->pid), &calls);
      KeepTimeLocked(&calls);
    }
    Deliver(std::move(calls));
  }
  Deliver({});  // nobody is left to wait for
}

void WorkerSupervisor::HandleReport(Worker& worker, absl::string_view bytes) {
  control::v1::Report report;
  Calls calls;
  {
    MutexLock lock(&mutex_);
    if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
      return KillLocked(worker, "a report does not parse");
    switch (report.kind_case()) {
      case control::v1::Report::kHello: {
        if (report.hello().abi() != ControlAbi())
          return KillLocked(worker, absl::StrCat("is of another build: abi ", report.hello().abi(),
                                                 ", not ", ControlAbi()));
        // Its own words on what it is; ours on where it is and how it does.
        v1::Device device = report.hello().device();
        const v1::Device& own = worker.device;
        device.set_device(own.device());
        device.set_state(own.state());
        device.set_detail(own.detail());
        device.set_epoch(own.epoch());
        device.set_pid(own.pid());
        device.set_socket(own.socket());
        device.set_fd_socket(own.fd_socket());
        device.set_restarts(own.restarts());
        worker.device = device;
        worker.pinged = options_.clock->Steady();
        calls.push_back([this, device] { observer_->OnWorkerReady(device); });
        break;
      }
      case control::v1::Report::kAcknowledged: {
        worker.acknowledged = std::max(worker.acknowledged, report.acknowledged());
        auto& waiting = worker.unacknowledged;
        while (!waiting.empty() && waiting.front().sequence <= worker.acknowledged) {
          if (waiting.front().revision != 0) worker.device.set_revision(waiting.front().revision);
          waiting.pop_front();
        }
        if (worker.attached && worker.device.state() == v1::DEVICE_STATE_STARTING &&
            worker.acknowledged >= worker.attach_sequence) {
          worker.serving_since = options_.clock->Steady();
          ChangeLocked(worker, v1::DEVICE_STATE_SERVING, "", worker.served_epoch, &calls);
          worker.served_epoch = worker.device.epoch();
        }
        break;
      }
      case control::v1::Report::kStatus: {
        worker.device.set_used_bytes(report.status().used_bytes());
        worker.fft_plans = report.status().fft_plans();
        worker.session_bytes.clear();
        for (const auto& [session, used] : report.status().session_bytes())
          worker.session_bytes[session] = used;
        break;
      }
      case control::v1::Report::kFreed: {
        const uint64_t session = report.freed().session_id(), freed = report.freed().bytes();
        worker.session_bytes.erase(session);
        calls.push_back([this, id = worker.options.id, session, freed] {
          observer_->OnSessionFreed(id, session, freed);
        });
        break;
      }
      case control::v1::Report::KIND_NOT_SET:
        return KillLocked(worker, "a report says nothing");
    }
  }
  Deliver(std::move(calls));
}

void WorkerSupervisor::Deliver(Calls calls) {
  for (const auto& call : calls) call();
  while (true) {
    std::function<void()> acknowledged;
    {
      MutexLock lock(&mutex_);
      delivering_ = false;
      if (pending_.empty()) return;
      for (const Pending::Wait& wait : pending_.front().waits) {
        const Worker& worker = *wait.worker;
        // A worker that is being killed still counts: until it is gone it may admit programs.
        if (worker.pid != 0 && worker.device.epoch() == wait.epoch &&
            worker.acknowledged < wait.sequence)
          return;
      }
      acknowledged = std::move(pending_.front().acknowledged);
      pending_.pop_front();
      delivering_ = true;  // until it has run, a Send with nobody attached must queue behind it
    }
    acknowledged();
  }
}

void WorkerSupervisor::ChangeLocked(Worker& worker, v1::DeviceState state, std::string detail,
                                    uint64_t old_epoch, Calls* calls) {
  worker.device.set_state(state);
  worker.device.set_detail(detail);
  LogInfo("device changed", {{"device", worker.options.id},
                             {"state", v1::DeviceState_Name(state)},
                             {"epoch", worker.device.epoch()},
                             {"pid", worker.device.pid()},
                             {"detail", detail}});
  calls->push_back(
      [this, device = worker.device, old_epoch] { observer_->OnDeviceChanged(device, old_epoch); });
}

void WorkerSupervisor::KillLocked(Worker& worker, std::string why) {
  if (worker.link_ended) return;
  worker.link_ended = true;
  worker.attached = false;
  worker.why_killed = std::move(why);
  // At a clean end the worker closes its link and exits by itself; give it that.
  if (!stopping_) SendSignal(worker.pidfd.get(), SIGKILL);
}

void WorkerSupervisor::StartWorkerLocked(Worker& worker, Calls* calls) {
  const uint64_t old_epoch = worker.device.epoch();
  Variables variables = options_.variables;
  variables[kDeviceVariable] = worker.options.id;
  variables[kDeviceEpochVariable] = absl::StrCat(old_epoch + 1);
  absl::StatusOr<Spawned> spawned = SpawnWorker(worker.options.binary, worker.listener.get(),
                                                worker.fd_listener.get(), variables);
  const absl::Duration now = options_.clock->Steady();
  if (!spawned.ok()) {
    const bool missing = absl::IsNotFound(spawned.status());
    const RestartPolicy::Next next = worker.policy.OnDeath(now, absl::ZeroDuration());
    worker.start_at = now + (missing ? options_.restart.retry : next.delay);
    return ChangeLocked(worker,
                        missing || next.down ? v1::DEVICE_STATE_DOWN : v1::DEVICE_STATE_LOST,
                        Str(spawned.status().message()), old_epoch, calls);
  }
  worker.pid = spawned->pid;
  worker.pidfd = std::move(spawned->pidfd);
  worker.link = std::make_unique<ControlLink>(std::move(spawned->control));
  worker.link_ended = worker.attached = false;
  worker.why_killed.clear();
  worker.sequence = worker.acknowledged = worker.attach_sequence = 0;
  worker.unacknowledged.clear();
  worker.started = now;
  worker.serving_since = worker.pinged = absl::InfiniteDuration();
  worker.device.set_epoch(old_epoch + 1);
  worker.device.set_pid(worker.pid);
  if (old_epoch != 0) worker.device.set_restarts(worker.device.restarts() + 1);
  ChangeLocked(worker, v1::DEVICE_STATE_STARTING, "", old_epoch, calls);
}

void WorkerSupervisor::BuryLocked(Worker& worker, const std::string& how, Calls* calls) {
  const absl::Duration now = options_.clock->Steady();
  std::string detail = absl::StrCat("the worker ", how);
  if (!worker.why_killed.empty()) absl::StrAppend(&detail, ": ", worker.why_killed);
  const absl::Duration served = worker.serving_since == absl::InfiniteDuration()
                                    ? absl::ZeroDuration()
                                    : now - worker.serving_since;
  worker.pid = 0;
  worker.pidfd.reset();
  worker.link.reset();
  worker.link_ended = worker.attached = false;
  worker.unacknowledged.clear();
  worker.sessions.clear();
  worker.session_bytes.clear();
  worker.fft_plans.reset();
  worker.device.set_pid(0);
  worker.device.set_used_bytes(0);
  worker.start_at = absl::InfiniteDuration();
  if (stopping_) return;
  const RestartPolicy::Next next = worker.policy.OnDeath(now, served);
  worker.start_at = now + next.delay;
  absl::StrAppend(&detail, "; next start in ", absl::FormatDuration(next.delay));
  ChangeLocked(worker, next.down ? v1::DEVICE_STATE_DOWN : v1::DEVICE_STATE_LOST, detail,
               worker.device.epoch(), calls);
}

void WorkerSupervisor::KeepTimeLocked(Calls* calls) {
  const absl::Duration now = options_.clock->Steady();
  for (const auto& worker : workers_) {
    if (worker->pid == 0) {
      if (!stopping_ && now >= worker->start_at) StartWorkerLocked(*worker, calls);
      continue;
    }
    if (stopping_) {
      if (now >= stop_at_) SendSignal(worker->pidfd.get(), SIGKILL);
      continue;
    }
    if (worker->link_ended) continue;
    if (worker->pinged == absl::InfiniteDuration()) {  // no hello yet
      if (now - worker->started >= options_.start_silence) KillLocked(*worker, "said no hello");
    } else if (!worker->unacknowledged.empty() &&
               now - worker->unacknowledged.front().at >= options_.command_silence) {
      KillLocked(*worker, "silent on a command");
    } else if (worker->attached && now - worker->pinged >= options_.ping_every) {
      worker->pinged = now;
      control::v1::Command ping;
      ping.set_ping(true);
      SendLocked(*worker, std::move(ping));
    }
  }
}

absl::Duration WorkerSupervisor::NextTimerLocked() const {
  absl::Duration next = options_.clock->Steady() + absl::Minutes(1);
  for (const auto& worker : workers_) {
    if (worker->pid == 0) {
      if (!stopping_) next = std::min(next, worker->start_at);
    } else if (stopping_) {
      next = std::min(next, std::max(stop_at_, options_.clock->Steady() + absl::Milliseconds(10)));
    } else if (worker->link_ended) {
      continue;
    } else if (worker->pinged == absl::InfiniteDuration()) {
      next = std::min(next, worker->started + options_.start_silence);
    } else {
      if (!worker->unacknowledged.empty())
        next = std::min(next, worker->unacknowledged.front().at + options_.command_silence);
      if (worker->attached) next = std::min(next, worker->pinged + options_.ping_every);
    }
  }
  return next;
}

}  // namespace backendd::node
