// The real backendd in a directory of its own, as a child of the test.
#ifndef BACKENDD_TESTS_PROCESS_DAEMON_DAEMON_PROCESS_H_
#define BACKENDD_TESTS_PROCESS_DAEMON_DAEMON_PROCESS_H_

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backendd/v1/device_service.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "shared/fd/fd.h"
#include "shared/fd/pidfd.h"

namespace backendd {

inline std::chrono::system_clock::time_point Soon(int seconds = 20) {
  return std::chrono::system_clock::now() + std::chrono::seconds(seconds);
}

// One child process; killed at its end, if it still runs.
class Child {
 public:
  Child(std::vector<std::string> words, const std::string& log, bool kill_with_test = true) {
    pid_ = fork();
    if (pid_ == 0) {
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(out, 1);
      dup2(out, 2);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    pidfd_ = OpenPidfd(pid_);
  }
  ~Child() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const { SendSignal(pidfd_.get(), signal); }
  bool Exits(int milliseconds = 20'000) const {
    pollfd waiting{pidfd_.get(), POLLIN, 0};
    return poll(&waiting, 1, milliseconds) == 1;
  }
  // Its exit status; -signal where one ended it; -1000 where it does not end.
  int Wait(int milliseconds = 20'000) {
    if (!Exits(milliseconds)) return -1000;
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  Fd pidfd_;
  bool ended_ = false;
};

class DaemonProcess : public testing::Test {
 protected:
  DaemonProcess() {
    char name[] = "/tmp/bdXXXXXX";
    directory_ = mkdtemp(name);
    socket_ = directory_ + "/s";
    log_ = directory_ + "/log";
  }
  ~DaemonProcess() override {
    if (HasFailure()) std::fprintf(stderr, "%s", Log().c_str());
    daemon_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::vector<std::string> Words(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {BIN "/backendd", "--socket", socket_});
    return more;
  }
  void Start(std::vector<std::string> more = {}) {
    daemon_ = std::make_unique<Child>(Words(std::move(more)), log_);
    ASSERT_TRUE(Healthy()) << Log();
  }
  // Runs to its end: its exit status.
  int RunToEnd(std::vector<std::string> words) const {
    return Child(std::move(words), log_).Wait();
  }

  std::shared_ptr<grpc::Channel> Channel(const std::string& socket = "") const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    return grpc::CreateCustomChannel("unix:" + (socket.empty() ? socket_ : socket),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  bool Healthy() const {
    auto stub = grpc::health::v1::Health::NewStub(Channel());
    grpc::ClientContext context;
    context.set_deadline(Soon());
    context.set_wait_for_ready(true);
    grpc::health::v1::HealthCheckResponse response;
    return stub->Check(&context, {}, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  }
  // The CPU, once it serves with at least this epoch; asked again and again, up to 20 s.
  v1::Device Cpu(uint64_t epoch = 1) const {
    auto stub = v1::DeviceService::NewStub(Channel());
    const auto until = Soon();
    while (std::chrono::system_clock::now() < until) {
      grpc::ClientContext context;
      context.set_deadline(until);
      context.set_wait_for_ready(true);
      v1::ListDevicesResponse response;
      const grpc::Status status = stub->ListDevices(&context, {}, &response);
      if (!status.ok()) break;
      for (const v1::Device& device : response.devices())
        if (device.device() == "cpu" && device.state() == v1::DEVICE_STATE_SERVING &&
            device.epoch() >= epoch)
          return device;
      poll(nullptr, 0, 5);
    }
    ADD_FAILURE() << "the cpu does not serve with epoch " << epoch;
    return {};
  }
  std::string Log() const {
    std::ifstream file(log_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string directory_, socket_, log_;
  std::unique_ptr<Child> daemon_;
};

}  // namespace backendd

#endif  // BACKENDD_TESTS_PROCESS_DAEMON_DAEMON_PROCESS_H_
