// A worker in this process, on a fake device, behind real Unix sockets; the test is its daemon.
#ifndef BACKENDD_TESTS_COMPONENT_COMPUTE_WORKER_FIXTURE_H_
#define BACKENDD_TESTS_COMPONENT_COMPUTE_WORKER_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "grpcpp/grpcpp.h"
#include "server/flags/catalogue.h"
#include "server/worker/worker.h"
#include "shared/convert/flag_value.h"
#include "shared/fd/channel.h"
#include "shared/status/grpc_status.h"
#include "tests/support/fake_device.h"
#include "tests/support/status_matchers.h"

namespace backendd::worker {

class WorkerTest : public testing::Test {
 protected:
  static constexpr uint64_t kSession = 0x1111, kOther = 0x2222;

  WorkerTest() {
    char name[] = "/tmp/bdXXXXXX";
    directory_ = mkdtemp(name);
    auto device = std::make_unique<FakeDevice>();
    device_ = device.get();
    auto sockets = *ControlLink::MakeSockets();
    link_ = std::make_unique<ControlLink>(std::move(sockets.first));
    Worker::Options options;
    options.control = std::move(sockets.second);
    options.listener = Listen("s", SOCK_STREAM);
    options.fd_listener = Listen("f", SOCK_SEQPACKET);
    options.device_epoch = 3;
    worker_ = *Worker::Create(std::move(options), std::move(device), clock_);
    worker_thread_ = std::thread([this] { worker_->Run().IgnoreError(); });
    daemon_thread_ = std::thread([this] { Daemon(); });
    control::v1::Command first;
    first.mutable_snapshot()->set_epoch("boot");
    first.mutable_snapshot()->set_revision(5);
    first.mutable_snapshot()->set_complete(true);
    *first.add_grants() = GrantOf(kSession);
    *first.add_grants() = GrantOf(kOther);
    Command(first);
    stub_ = v1::ComputeService::NewStub(
        grpc::CreateChannel("unix:" + Path("s"), grpc::InsecureChannelCredentials()));
  }
  ~WorkerTest() override {
    link_->Close();
    daemon_thread_.join();
    worker_thread_.join();
    worker_.reset();
    EXPECT_EQ(rmdir(directory_.c_str()), -1);  // holds the sockets until here
    unlink(Path("s").c_str());
    unlink(Path("f").c_str());
    rmdir(directory_.c_str());
  }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  static control::v1::Grant GrantOf(uint64_t session) {
    control::v1::Grant grant;
    grant.set_session_id(session);
    grant.set_token(TokenOf(session));
    grant.set_uid(getuid());
    grant.set_pid(getpid());
    return grant;
  }
  static std::string TokenOf(uint64_t session) {
    return std::string(8, 'k') + std::string(reinterpret_cast<const char*>(&session), 8);
  }
  static void Authorize(grpc::ClientContext* context, uint64_t session) {
    context->AddMetadata("backendd-grant", absl::BytesToHexString(TokenOf(session)));
  }

  // Sends a command and waits until it is in force.
  void Command(control::v1::Command command) {
    command.set_sequence(++sequence_);
    ASSERT_OK(link_->Send(command));
    MutexLock lock(&mutex_);
    while (acknowledged_ < sequence_) changed_.Wait(&mutex_);
  }
  uint64_t AwaitFreed(uint64_t session) {
    MutexLock lock(&mutex_);
    while (freed_.count(session) == 0) changed_.Wait(&mutex_);
    return freed_[session];
  }
  // Every number of the worker's books, as the daemon sees them.
  control::v1::Status Ping() {
    control::v1::Command command;
    command.set_ping(true);
    {
      MutexLock lock(&mutex_);
      have_status_ = false;
    }
    Command(command);
    MutexLock lock(&mutex_);
    while (!have_status_) changed_.Wait(&mutex_);
    return status_;
  }

  absl::Status Submit(const v1::SubmitRequest& request, v1::SubmitResponse* response) {
    grpc::ClientContext context;
    Authorize(&context, request.session_id());
    return FromGrpc(stub_->Submit(&context, request, response));
  }
  absl::Status Allocate(uint64_t session, std::vector<std::pair<uint64_t, uint64_t>> buffers) {
    grpc::ClientContext context;
    Authorize(&context, session);
    v1::AllocateBuffersRequest request;
    request.set_session_id(session);
    for (const auto& [id, bytes] : buffers) {
      request.add_buffers()->set_buffer(id);
      request.mutable_buffers()->rbegin()->set_bytes(bytes);
    }
    v1::AllocateBuffersResponse response;
    return FromGrpc(stub_->AllocateBuffers(&context, request, &response));
  }
  absl::StatusOr<v1::FreeBuffersResponse> Free(uint64_t session, std::vector<uint64_t> ids) {
    grpc::ClientContext context;
    Authorize(&context, session);
    v1::FreeBuffersRequest request;
    request.set_session_id(session);
    for (uint64_t id : ids) request.add_buffers(id);
    v1::FreeBuffersResponse response;
    const absl::Status status = FromGrpc(stub_->FreeBuffers(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }
  absl::StatusOr<std::string> ReadBytes(uint64_t session, uint64_t buffer, uint64_t length) {
    grpc::ClientContext context;
    Authorize(&context, session);
    v1::ReadChunksRequest request;
    request.set_session_id(session);
    request.set_buffer(buffer);
    request.set_length(length);
    v1::ReadChunksResponse response;
    const absl::Status status = FromGrpc(stub_->ReadChunks(&context, request, &response));
    if (!status.ok()) return status;
    return response.bytes();
  }

  static v1::Operand Floats(uint64_t buffer, int64_t count, uint64_t offset = 0) {
    v1::Operand operand;
    operand.set_buffer(buffer);
    operand.set_offset(offset);
    operand.set_dtype(v1::DTYPE_F32);
    operand.add_shape(count);
    return operand;
  }
  static v1::SubmitRequest Program(uint64_t session = kSession) {
    v1::SubmitRequest request;
    request.set_session_id(session);
    return request;
  }
  static void Fill(v1::SubmitRequest* program, v1::Operand y, double value) {
    v1::Fill* const fill = program->add_operations()->mutable_fill();
    *fill->mutable_y() = std::move(y);
    fill->mutable_value()->set_real(value);
  }
  static void Read(v1::SubmitRequest* program, v1::Operand x) {
    *program->add_operations()->mutable_read()->mutable_x() = std::move(x);
  }

  SystemClock clock_;
  std::string directory_;
  FakeDevice* device_ = nullptr;
  std::unique_ptr<ControlLink> link_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<v1::ComputeService::Stub> stub_;
  uint64_t sequence_ = 0;

 private:
  Fd Listen(const std::string& name, int type) {
    Fd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, Path(name).c_str());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd.get(), 64), 0);
    return fd;
  }
  void Daemon() {
    link_
        ->Run([this](absl::string_view bytes) {
          control::v1::Report report;
          EXPECT_TRUE(report.ParseFromArray(bytes.data(), bytes.size()));
          MutexLock lock(&mutex_);
          if (report.has_status()) {
            status_ = report.status();
            have_status_ = true;
          } else if (report.has_freed()) {
            freed_[report.freed().session_id()] = report.freed().bytes();
          } else if (!report.has_hello()) {
            acknowledged_ = report.acknowledged();
          }
          changed_.SignalAll();
        })
        .IgnoreError();
  }

  Mutex mutex_;
  CondVar changed_;
  uint64_t acknowledged_ = 0;
  std::map<uint64_t, uint64_t> freed_;
  control::v1::Status status_;
  bool have_status_ = false;
  std::thread worker_thread_, daemon_thread_;
};

}  // namespace backendd::worker

#endif  // BACKENDD_TESTS_COMPONENT_COMPUTE_WORKER_FIXTURE_H_
