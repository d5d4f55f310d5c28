// A client of a real daemon, and the events of its session.
#ifndef BACKENDD_TESTS_PROCESS_CLIENT_CLIENT_PROCESS_H_
#define BACKENDD_TESTS_PROCESS_CLIENT_CLIENT_PROCESS_H_

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "backendd/client.h"
#include "shared/sync.h"
#include "tests/process/daemon/daemon_process.h"
#include "tests/support/status_matchers.h"

namespace backendd {

// Events of a session, to be waited for.
class Events {
 public:
  std::function<void(const SessionEvent&)> Sink() {
    return [this](const SessionEvent& event) {
      MutexLock lock(&mutex_);
      events_.push_back(event);
      changed_.SignalAll();
    };
  }
  // The next one of a kind; those before it are gone. Nothing where none comes within 20 s.
  template <class Event>
  std::optional<Event> Next() {
    MutexLock lock(&mutex_);
    while (true) {
      if (events_.empty()) changed_.WaitWithTimeout(&mutex_, absl::Seconds(20));
      if (events_.empty()) return std::nullopt;
      const SessionEvent event = events_.front();
      events_.pop_front();
      if (const auto* wanted = std::get_if<Event>(&event)) return *wanted;
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<SessionEvent> events_;
};

class ClientProcess : public DaemonProcess {
 protected:
  void SetUp() override {
    Start();
    Cpu();  // serves
  }
  void Open(absl::Duration ttl = absl::Seconds(10), absl::Duration deadline = absl::Seconds(10)) {
    auto client = Client::Create({socket_, deadline});
    ASSERT_OK(client);
    client_ = *std::move(client);
    SessionOptions options;
    options.name = "test";
    options.ttl = ttl;
    options.on_event = events_.Sink();
    auto session = client_->OpenSession(std::move(options));
    ASSERT_OK(session);
    session_ = *std::move(session);
    ASSERT_OK(session_->WaitServing("cpu", absl::Seconds(20)));
  }
  // The node's value, or the session's.
  bool Node(const std::string& flag) {
    const auto reading = client_->Get(flag);
    return reading.ok() && reading->value().bool_();
  }
  bool Own(const std::string& flag) {
    const auto reading = session_->Get(flag);
    return reading.ok() && reading->value().bool_();
  }
  // Asked again and again, up to 20 s.
  template <class Condition>
  bool Becomes(Condition condition) {
    for (const auto until = Soon(); std::chrono::system_clock::now() < until;) {
      if (condition()) return true;
      poll(nullptr, 0, 5);
    }
    return false;
  }
  // Returns when all of its threads stand still.
  void StopDaemon() {
    daemon_->Signal(SIGSTOP);
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, daemon_->pid(), &info, WSTOPPED), 0);
  }
  void KillWorker() {
    const pid_t worker = static_cast<pid_t>(Cpu().pid());
    ASSERT_GT(worker, 0);
    ASSERT_EQ(kill(worker, SIGKILL), 0);
  }

  Events events_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Session> session_;
};

}  // namespace backendd

#endif  // BACKENDD_TESTS_PROCESS_CLIENT_CLIENT_PROCESS_H_
