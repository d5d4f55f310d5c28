// What the daemon promises as a process: one per socket, ended by signals, workers that end with
// it.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "backendd/v1/session_service.grpc.pb.h"
#include "tests/process/daemon/daemon_process.h"

namespace backendd {
namespace {

using testing::HasSubstr;

// S66.
TEST_F(DaemonProcess, ASecondDaemonOnTheSocketIsRefusedAndTheFirstGoesOn) {
  Start();
  EXPECT_EQ(RunToEnd(Words()), 1);
  EXPECT_THAT(Log(), HasSubstr("in use by a live process"));
  EXPECT_TRUE(Healthy());
}

TEST_F(DaemonProcess, AStaleSocketFileIsReplaced) {
  Start();
  daemon_->Signal(SIGKILL);
  EXPECT_EQ(daemon_->Wait(), -SIGKILL);
  ASSERT_TRUE(std::filesystem::exists(socket_));
  Start();
}

// S65.
TEST_F(DaemonProcess, ASocketPathThatDoesNotFitIsNamedWithItsLength) {
  const std::string path = directory_ + "/" + std::string(150, 'x');
  EXPECT_EQ(RunToEnd({BIN "/backendd", "--socket", path}), 2);
  EXPECT_THAT(Log(), HasSubstr(std::to_string(path.size()) + " bytes"));
  EXPECT_THAT(Log(), HasSubstr(path));
}

TEST_F(DaemonProcess, TheSocketIsForOwnerAndGroup) {
  Start();
  struct stat info;
  for (const char* name : {"/s", "/cpu.sock", "/cpu.fd.sock"}) {
    ASSERT_EQ(stat((directory_ + name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0660u) << name;
  }
}

TEST_F(DaemonProcess, SigtermEndsItWithZeroAndTakesTheSocketsAway) {
  Start();
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0);
  for (const char* name : {"/s", "/cpu.sock", "/cpu.fd.sock"})
    EXPECT_FALSE(std::filesystem::exists(directory_ + name)) << name;
}

// As process 1 of a PID namespace, where a signal without a handler does nothing.
TEST_F(DaemonProcess, SigtermEndsItAlsoAsProcessOne) {
  std::vector<std::string> words = Words();
  words.insert(words.begin(), {"/usr/bin/unshare", "--pid", "--fork", "--kill-child"});
  if (RunToEnd({"/usr/bin/unshare", "--pid", "--fork", "/bin/true"}) != 0)
    GTEST_SKIP() << "needs the right to make a PID namespace";
  Child unshare(words, log_);
  ASSERT_TRUE(Healthy());
  std::ifstream children("/proc/" + std::to_string(unshare.pid()) + "/task/" +
                         std::to_string(unshare.pid()) + "/children");
  pid_t first = 0;
  ASSERT_TRUE(children >> first);
  Fd pidfd = OpenPidfd(first);
  SendSignal(pidfd.get(), SIGTERM);
  EXPECT_EQ(unshare.Wait(), 0);
}

// A session that stays until its stream ends.
struct OpenSession {
  explicit OpenSession(const std::shared_ptr<grpc::Channel>& channel)
      : stub(v1::SessionService::NewStub(channel)) {
    context.set_deadline(Soon(60));
    context.set_wait_for_ready(true);
    stream = stub->OpenSession(&context);
    v1::OpenSessionRequest hello;
    hello.mutable_hello()->set_name("holder");
    stream->Write(hello);
    v1::OpenSessionResponse welcome;
    welcomed = stream->Read(&welcome) && welcome.has_welcome();
  }
  bool ReadsDraining() {
    v1::OpenSessionResponse frame;
    while (stream->Read(&frame))
      if (frame.has_draining()) return true;
    return false;
  }
  std::unique_ptr<v1::SessionService::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>> stream;
  bool welcomed = false;
};

TEST_F(DaemonProcess, SigtermGivesNoticeAndEndsWhenTheLastSessionLeaves) {
  Start({"--drain-timeout", "60s"});
  auto session = std::make_unique<OpenSession>(Channel());
  ASSERT_TRUE(session->welcomed);
  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(session->ReadsDraining());
  EXPECT_FALSE(daemon_->Exits(100));  // it waits for the session
  session->context.TryCancel();
  session.reset();
  EXPECT_EQ(daemon_->Wait(), 0);
}

// S69.
TEST_F(DaemonProcess, TheDrainTimeoutEndsSessionsThatStay) {
  Start({"--drain-timeout", "200ms"});
  OpenSession session(Channel());
  ASSERT_TRUE(session.welcomed);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0);
}

TEST_F(DaemonProcess, ASecondSignalEndsItAtOnce) {
  Start({"--drain-timeout", "1h"});
  OpenSession session(Channel());
  ASSERT_TRUE(session.welcomed);
  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(session.ReadsDraining());
  EXPECT_FALSE(daemon_->Exits(100));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(10'000), 0);
}

TEST_F(DaemonProcess, AKilledDaemonTakesItsWorkersWithIt) {
  Start();
  Fd worker = OpenPidfd(static_cast<pid_t>(Cpu().pid()));
  ASSERT_TRUE(worker);
  daemon_->Signal(SIGKILL);
  EXPECT_EQ(daemon_->Wait(), -SIGKILL);
  pollfd waiting{worker.get(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 20'000), 1);
}

TEST_F(DaemonProcess, AKilledWorkerServesAgainAsTheNextEpoch) {
  Start();
  const v1::Device before = Cpu();
  kill(static_cast<pid_t>(before.pid()), SIGKILL);
  const v1::Device after = Cpu(before.epoch() + 1);
  EXPECT_EQ(after.epoch(), before.epoch() + 1);
  EXPECT_NE(after.pid(), before.pid());
  EXPECT_EQ(after.restarts(), 1);
  EXPECT_TRUE(Healthy());
}

TEST_F(DaemonProcess, WithoutAWorkerProgramTheDaemonServesFlagsAndSaysWhy) {
  Start({"--worker-dir", directory_});
  auto stub = v1::DeviceService::NewStub(Channel());
  grpc::ClientContext context;
  context.set_deadline(Soon());
  v1::ListDevicesResponse response;
  ASSERT_TRUE(stub->ListDevices(&context, {}, &response).ok());
  ASSERT_GT(response.devices_size(), 0);
  EXPECT_EQ(response.devices(0).state(), v1::DEVICE_STATE_DOWN);
  EXPECT_THAT(response.devices(0).detail(), HasSubstr(directory_ + "/backendd-worker-cpu"));
}

TEST_F(DaemonProcess, ARequiredDeviceThatIsNotThereIsAFailure) {
  EXPECT_EQ(RunToEnd(Words({"--require-device", "cuda"})), 1);
  EXPECT_THAT(Log(), HasSubstr("cuda"));
}

// Bytes that are no HTTP/2, and a stranger who says nothing: the daemon goes on.
TEST_F(DaemonProcess, GarbageOnTheSocketHarmsNobody) {
  Start();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_.copy(address.sun_path, socket_.size());
  for (const std::string& bytes :
       {std::string(5000, '\xff'), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\1"), std::string()}) {
    Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(Healthy());
}

}  // namespace
}  // namespace backendd
