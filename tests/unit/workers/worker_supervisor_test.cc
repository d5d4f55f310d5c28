#include "server/node/workers/worker_supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "server/node/workers/restart_policy.h"
#include "shared/fd/pidfd.h"
#include "tests/support/status_matchers.h"

namespace backendd::node {
namespace {

// Records what it hears; tests wait for a state by condition, never by time.
class Recorder final : public Workers::Observer {
 public:
  void OnWorkerReady(const v1::Device& device) override {
    supervisor->Attach(device.device(), First());
  }
  void OnDeviceChanged(const v1::Device& device, uint64_t old_epoch) override {
    MutexLock lock(&mutex_);
    events_.push_back({device, old_epoch});
    changed_.SignalAll();
  }
  void OnSessionFreed(const DeviceId&, uint64_t session, uint64_t bytes) override {
    MutexLock lock(&mutex_);
    freed_.insert({session, bytes});
    changed_.SignalAll();
  }
  static control::v1::Command First() {
    control::v1::Command command;
    command.mutable_snapshot()->set_revision(1);
    command.mutable_snapshot()->set_complete(true);
    return command;
  }
  // The first event in `state` with at least `epoch`; its old epoch too. Fails after 20 s.
  std::pair<v1::Device, uint64_t> Await(v1::DeviceState state, uint64_t epoch) {
    MutexLock lock(&mutex_);
    while (true) {
      for (const auto& event : events_)
        if (event.first.state() == state && event.first.epoch() >= epoch) return event;
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20))) break;
    }
    ADD_FAILURE() << "the device never came to " << v1::DeviceState_Name(state);
    return {};
  }
  void AwaitFreed(uint64_t session, uint64_t bytes) {
    MutexLock lock(&mutex_);
    while (freed_.count({session, bytes}) == 0)
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20))) FAIL() << "never freed";
  }

  WorkerSupervisor* supervisor = nullptr;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::pair<v1::Device, uint64_t>> events_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<uint64_t, uint64_t>> freed_ ABSL_GUARDED_BY(mutex_);
};

class Latch {
 public:
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  bool Wait() {
    MutexLock lock(&mutex_);
    while (!open_)
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20))) return false;
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

class Supervisor : public testing::Test {
 protected:
  Supervisor() { directory_ = mkdtemp(template_); }
  ~Supervisor() override {
    if (supervisor_ != nullptr) {
      supervisor_->Stop(absl::Seconds(5));
      supervisor_->RemoveSockets();
    }
    unlink((directory_ + "/report").c_str());
    rmdir(directory_.c_str());
  }
  WorkerSupervisor& Start(const std::string& mode, absl::Duration silence = absl::Seconds(10),
                          const char* binary = STAND_IN_BINARY) {
    WorkerSupervisor::Options options;
    options.devices = {{"cpu", binary, directory_ + "/cpu.sock", directory_ + "/cpu.fd.sock"}};
    options.variables = {{"STAND_IN", mode}, {"STAND_IN_REPORT", directory_ + "/report"}};
    options.restart.first = absl::Milliseconds(1);
    options.restart.deaths = 3;
    options.command_silence = silence;
    options.ping_every = absl::Milliseconds(20);
    options.clock = &clock_;
    auto supervisor = WorkerSupervisor::Create(std::move(options));
    EXPECT_OK(supervisor);
    supervisor_ = *std::move(supervisor);
    recorder_.supervisor = supervisor_.get();
    supervisor_->Start(&recorder_);
    return *supervisor_;
  }

  char template_[32] = "/tmp/bsXXXXXX";
  std::string directory_;
  SystemClock clock_;
  Recorder recorder_;
  std::unique_ptr<WorkerSupervisor> supervisor_;
};

control::v1::Command Revision(uint64_t revision) {
  control::v1::Command command;
  command.mutable_snapshot()->set_revision(revision);
  return command;
}

TEST_F(Supervisor, AWorkerServesOnceItsFirstCommandIsInForce) {
  WorkerSupervisor& supervisor = Start("serve");
  const auto [device, old_epoch] = recorder_.Await(v1::DEVICE_STATE_SERVING, 1);
  EXPECT_EQ(device.epoch(), 1u);
  EXPECT_EQ(old_epoch, 0u);
  EXPECT_EQ(device.name(), "stand-in");
  EXPECT_GT(device.pid(), 0);
  EXPECT_EQ(supervisor.Devices()[0].revision(), 1u);
  struct stat info;
  ASSERT_EQ(stat(device.fd_socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
}

TEST_F(Supervisor, AcknowledgementsRunInCallOrder) {
  WorkerSupervisor& supervisor = Start("serve");
  recorder_.Await(v1::DEVICE_STATE_SERVING, 1);
  std::vector<int> order;  // only the supervisor's thread writes it, until the last
  Latch last;
  for (int i = 2; i <= 200; ++i)
    supervisor.Send([&](const DeviceId&) { return Revision(i); },
                    [&, i] {
                      order.push_back(i);
                      if (i == 200) last.Open();
                    });
  ASSERT_TRUE(last.Wait());
  ASSERT_EQ(order.size(), 199u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(supervisor.Devices()[0].revision(), 200u);
}

TEST_F(Supervisor, WithNobodyAttachedAnAcknowledgementRunsAtOnce) {
  WorkerSupervisor& supervisor = Start("mute");
  bool acknowledged = false;
  supervisor.Send([](const DeviceId&) { return Revision(2); }, [&] { acknowledged = true; });
  EXPECT_TRUE(acknowledged);
}

TEST_F(Supervisor, AKilledWorkerComesBackAsTheNextEpoch) {
  Start("serve");
  const v1::Device first = recorder_.Await(v1::DEVICE_STATE_SERVING, 1).first;
  kill(static_cast<pid_t>(first.pid()), SIGKILL);
  EXPECT_EQ(recorder_.Await(v1::DEVICE_STATE_LOST, 1).first.epoch(), 1u);
  const auto [second, old_epoch] = recorder_.Await(v1::DEVICE_STATE_SERVING, 2);
  EXPECT_EQ(second.epoch(), 2u);
  EXPECT_EQ(old_epoch, 1u);
  EXPECT_NE(second.pid(), first.pid());
  EXPECT_EQ(second.restarts(), 1);
}

TEST_F(Supervisor, AWorkerSilentOnACommandIsEndedAndCountsAsGone) {
  WorkerSupervisor& supervisor = Start("silent", absl::Milliseconds(50));
  recorder_.Await(v1::DEVICE_STATE_SERVING, 1);
  Latch gone;
  supervisor.Send([](const DeviceId&) { return Revision(2); }, [&] { gone.Open(); });
  EXPECT_TRUE(gone.Wait());
  EXPECT_THAT(recorder_.Await(v1::DEVICE_STATE_LOST, 1).first.detail(),
              testing::HasSubstr("silent on a command"));
}

TEST_F(Supervisor, ThreeDeathsOpenTheBreaker) {
  Start("exit");
  const v1::Device device = recorder_.Await(v1::DEVICE_STATE_DOWN, 3).first;
  EXPECT_EQ(device.epoch(), 3u);
  EXPECT_THAT(device.detail(), testing::HasSubstr("exited with 7"));
}

TEST_F(Supervisor, ATruncatedFrameEndsTheLinkAndTheWorker) {
  Start("raw");
  EXPECT_THAT(recorder_.Await(v1::DEVICE_STATE_DOWN, 3).first.detail(),
              testing::HasSubstr("worker"));
}

TEST_F(Supervisor, AWorkerOfAnotherBuildIsRefused) {
  Start("abi");
  EXPECT_THAT(recorder_.Await(v1::DEVICE_STATE_LOST, 1).first.detail(),
              testing::HasSubstr("another build"));
}

TEST_F(Supervisor, AMissingBinaryMakesTheDeviceDownAndNamesThePath) {
  WorkerSupervisor& supervisor = Start("serve", absl::Seconds(10), "/nowhere/backendd-worker-cpu");
  EXPECT_THAT(recorder_.Await(v1::DEVICE_STATE_DOWN, 0).first.detail(),
              testing::HasSubstr("/nowhere/backendd-worker-cpu"));
  EXPECT_EQ(supervisor.Devices()[0].state(), v1::DEVICE_STATE_DOWN);
}

TEST_F(Supervisor, BytesAndEndingsOfSessionsAreReported) {
  WorkerSupervisor& supervisor = Start("serve");
  recorder_.Await(v1::DEVICE_STATE_SERVING, 1);
  while (supervisor.SessionBytes(7).empty()) usleep(1000);  // by the next ping
  EXPECT_EQ(supervisor.SessionBytes(7).at("cpu"), 4096u);
  supervisor.Send(
      [](const DeviceId&) {
        control::v1::Command command;
        command.add_ends()->set_session_id(7);
        return command;
      },
      [] {});
  recorder_.AwaitFreed(7, 4096);
}

TEST_F(Supervisor, AWorkerHasItsThreeFdsAndNoOthers) {
  Start("serve");
  recorder_.Await(v1::DEVICE_STATE_SERVING, 1);
  std::ifstream file(directory_ + "/report");
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  for (int fd : {3, 4, 5}) EXPECT_EQ(lines.count("fd " + std::to_string(fd)), 1u);
  // 6 is the report that the stand-in itself has open.
  for (int fd = 7; fd < 64; ++fd) EXPECT_EQ(lines.count("fd " + std::to_string(fd)), 0u) << fd;
  EXPECT_EQ(lines.count("pgid own"), 1u);
  EXPECT_EQ(lines.count("BACKENDD_DEVICE=cpu"), 1u);
  EXPECT_EQ(lines.count("BACKENDD_DEVICE_EPOCH=1"), 1u);
}

TEST_F(Supervisor, StopEndsTheWorker) {
  WorkerSupervisor& supervisor = Start("serve");
  const v1::Device device = recorder_.Await(v1::DEVICE_STATE_SERVING, 1).first;
  Fd pidfd = OpenPidfd(static_cast<pid_t>(device.pid()));
  ASSERT_TRUE(pidfd);
  supervisor.Stop(absl::Seconds(20));
  EXPECT_TRUE(HasExited(pidfd.get()));
}

TEST(RestartPolicy, TheDelayDoublesUpToTheLongest) {
  RestartPolicy policy({});
  const double expected[] = {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5};
  absl::Duration now;
  for (double seconds : expected) {
    const RestartPolicy::Next next = policy.OnDeath(now, absl::ZeroDuration());
    EXPECT_EQ(next.delay, absl::Seconds(seconds));
    EXPECT_FALSE(next.down);
    now += absl::Seconds(40);  // never 3 in 60 s
  }
}

TEST(RestartPolicy, TheThirdDeathInAMinuteOpensTheBreakerUntilAWorkerHasServed) {
  RestartPolicy policy({});
  policy.OnDeath(absl::Seconds(0), absl::ZeroDuration());
  policy.OnDeath(absl::Seconds(1), absl::ZeroDuration());
  EXPECT_TRUE(policy.OnDeath(absl::Seconds(59), absl::ZeroDuration()).down);
  // One try per 5 minutes, however it ends.
  const RestartPolicy::Next again = policy.OnDeath(absl::Seconds(400), absl::Seconds(1));
  EXPECT_TRUE(again.down);
  EXPECT_EQ(again.delay, absl::Minutes(5));
  const RestartPolicy::Next after = policy.OnDeath(absl::Seconds(900), absl::Seconds(120));
  EXPECT_FALSE(after.down);
  EXPECT_EQ(after.delay, absl::Milliseconds(100));
}

TEST(WorkerEnvironment, PicksKernelsByCpuAndKeepsAnOperatorsChoice) {
  const CpuFeatures emerald{true, true, true};
  EXPECT_EQ(WorkerEnvironment({}, emerald).at("OPENBLAS_CORETYPE"), "Cooperlake");
  EXPECT_EQ(WorkerEnvironment({}, {true, true, false}).at("OPENBLAS_CORETYPE"), "SkylakeX");
  EXPECT_EQ(WorkerEnvironment({}, {true, false, false}).at("OPENBLAS_CORETYPE"), "Haswell");
  EXPECT_EQ(WorkerEnvironment({}, {}).count("OPENBLAS_CORETYPE"), 0u);
  EXPECT_EQ(WorkerEnvironment({{"OPENBLAS_CORETYPE", "Zen"}}, emerald).at("OPENBLAS_CORETYPE"),
            "Zen");
}

TEST(WorkerEnvironment, AtenCpuCapabilityCapsBothLibraries) {
  const Variables capped = WorkerEnvironment({{"ATEN_CPU_CAPABILITY", "avx2"}}, {true, true, true});
  EXPECT_EQ(capped.at("OPENBLAS_CORETYPE"), "Haswell");
  EXPECT_EQ(capped.at("DNNL_MAX_CPU_ISA"), "AVX2");
}

TEST(WorkerEnvironment, TakesOutWhatWouldSteerTheLibraries) {
  const Variables scrubbed = WorkerEnvironment({{"OMP_NUM_THREADS", "1"},
                                                {"DNNL_VERBOSE", "1"},
                                                {"ONEDNN_DEFAULT_FPMATH_MODE", "BF16"},
                                                {"OPENBLAS_NUM_THREADS", "1"},
                                                {"MKL_NUM_THREADS", "1"},
                                                {"BACKENDD_SERVER_SOCKET", "/x"},
                                                {"PATH", "/bin"}},
                                               {});
  EXPECT_EQ(scrubbed, (Variables{{"OMP_WAIT_POLICY", "passive"}, {"PATH", "/bin"}}));
}

}  // namespace
}  // namespace backendd::node
