// Sessions of a real daemon and bare calls to its real worker.
#ifndef BACKENDD_TESTS_PROCESS_WORKER_WORKER_PROCESS_H_
#define BACKENDD_TESTS_PROCESS_WORKER_WORKER_PROCESS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "backendd/v1/compute_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "shared/status/grpc_status.h"
#include "tests/process/daemon/daemon_process.h"
#include "tests/support/status_matchers.h"

namespace backendd {

// One session, held by its stream, and the way to the CPU's worker.
class Caller {
 public:
  Caller(std::shared_ptr<grpc::Channel> daemon, std::shared_ptr<grpc::Channel> worker)
      : sessions_(v1::SessionService::NewStub(std::move(daemon))),
        compute_(v1::ComputeService::NewStub(std::move(worker))),
        stream_(sessions_->OpenSession(&context_)) {
    v1::OpenSessionRequest hello;
    hello.mutable_hello()->set_name("test");
    hello.mutable_hello()->mutable_ttl()->set_seconds(300);
    EXPECT_TRUE(stream_->Write(hello));
    v1::OpenSessionResponse response;
    EXPECT_TRUE(stream_->Read(&response));
    id_ = response.welcome().session_id();
    for (const v1::DeviceGrant& grant : response.welcome().devices())
      if (grant.device() == "cpu") token_ = grant.token();
  }
  ~Caller() { context_.TryCancel(); }
  uint64_t id() const { return id_; }

  v1::SubmitRequest Program() const {
    v1::SubmitRequest program;
    program.set_session_id(id_);
    return program;
  }
  absl::Status Submit(const v1::SubmitRequest& program, v1::SubmitResponse* response) const {
    grpc::ClientContext context;
    Prepare(&context);
    response->Clear();
    return FromGrpc(compute_->Submit(&context, program, response));
  }
  absl::Status Allocate(uint64_t buffer, uint64_t bytes) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::AllocateBuffersRequest request;
    request.set_session_id(id_);
    request.add_buffers()->set_buffer(buffer);
    request.mutable_buffers(0)->set_bytes(bytes);
    v1::AllocateBuffersResponse response;
    return FromGrpc(compute_->AllocateBuffers(&context, request, &response));
  }
  absl::StatusOr<std::string> Read(uint64_t buffer, uint64_t bytes) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::ReadChunksRequest request;
    request.set_session_id(id_);
    request.set_buffer(buffer);
    request.set_length(bytes);
    v1::ReadChunksResponse response;
    const absl::Status status = FromGrpc(compute_->ReadChunks(&context, request, &response));
    if (!status.ok()) return status;
    return response.bytes();
  }
  absl::Status Write(uint64_t buffer, const std::string& bytes) const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::WriteChunksRequest request;
    request.set_session_id(id_);
    request.set_buffer(buffer);
    request.set_bytes(bytes);
    v1::WriteChunksResponse response;
    return FromGrpc(compute_->WriteChunks(&context, request, &response));
  }
  // The worker's own books, by use.
  std::map<std::string, uint64_t> Ledger() const {
    grpc::ClientContext context;
    Prepare(&context);
    v1::DescribeDeviceResponse response;
    EXPECT_TRUE(compute_->DescribeDevice(&context, {}, &response).ok());
    return {response.ledger().begin(), response.ledger().end()};
  }

 private:
  void Prepare(grpc::ClientContext* context) const {
    context->set_deadline(Soon());
    context->set_wait_for_ready(true);
    context->AddMetadata("backendd-grant", absl::BytesToHexString(token_));
  }

  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::ComputeService::Stub> compute_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>>
      stream_;
  uint64_t id_ = 0;
  std::string token_;
};

class WorkerProcess : public DaemonProcess {
 protected:
  void SetUp() override {
    Start();
    cpu_ = Cpu();
  }
  std::unique_ptr<Caller> Open() const {
    return std::make_unique<Caller>(Channel(), Channel(cpu_.socket()));
  }
  // A private value; the revision at which it holds.
  uint64_t Set(uint64_t session, const std::string& flag, const v1::FlagValue& value) const {
    v1::SetFlagsRequest request;
    request.set_session_id(session);
    request.add_assignments()->set_flag(flag);
    *request.mutable_assignments(0)->mutable_value() = value;
    grpc::ClientContext context;
    context.set_deadline(Soon());
    v1::SetFlagsResponse response;
    const grpc::Status status =
        v1::FlagService::NewStub(Channel())->SetFlags(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.revision();
  }
  static v1::Operand View(uint64_t buffer, uint64_t offset, std::vector<int64_t> shape,
                          v1::Dtype dtype = v1::DTYPE_F32) {
    v1::Operand operand;
    operand.set_buffer(buffer);
    operand.set_offset(offset);
    operand.set_dtype(dtype);
    for (int64_t extent : shape) operand.add_shape(extent);
    return operand;
  }
  static void Fill(v1::SubmitRequest* program, v1::Operand y, double value) {
    v1::Fill* const fill = program->add_operations()->mutable_fill();
    *fill->mutable_y() = std::move(y);
    fill->mutable_value()->set_real(value);
  }
  static void Gemm(v1::SubmitRequest* program, v1::Operand a, v1::Operand b, v1::Operand y) {
    v1::Gemm* const gemm = program->add_operations()->mutable_gemm();
    *gemm->mutable_a() = std::move(a);
    *gemm->mutable_b() = std::move(b);
    *gemm->mutable_y() = std::move(y);
  }
  static void Read(v1::SubmitRequest* program, v1::Operand x) {
    *program->add_operations()->mutable_read()->mutable_x() = std::move(x);
  }

  v1::Device cpu_;
};

}  // namespace backendd

#endif  // BACKENDD_TESTS_PROCESS_WORKER_WORKER_PROCESS_H_
