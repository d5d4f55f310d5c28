// A node through the wire, and the calls that its tests make.
#ifndef BACKENDD_TESTS_COMPONENT_CONTROL_PLANE_H_
#define BACKENDD_TESTS_COMPONENT_CONTROL_PLANE_H_

#include <gtest/gtest.h>

#include "tests/support/in_process_node.h"

namespace backendd::node {

class ControlPlaneTest : public testing::Test {
 protected:
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>> io;
    v1::Welcome welcome;
  };
  std::unique_ptr<Stream> Open(const v1::Hello& how = {}) {
    auto stream = std::make_unique<Stream>();
    stream->io = sessions_->OpenSession(&stream->context);
    v1::OpenSessionRequest hello;
    *hello.mutable_hello() = how;
    hello.mutable_hello()->set_name("test");
    stream->io->Write(hello);
    v1::OpenSessionResponse frame;
    if (stream->io->Read(&frame)) stream->welcome = frame.welcome();
    return stream;
  }
  v1::AcquireLeaseRequest Request(const Stream& session, int64_t limit,
                                  v1::LeaseMode mode = v1::LEASE_MODE_SHARED) {
    v1::AcquireLeaseRequest request;
    request.set_session_id(session.welcome.session_id());
    request.set_mode(mode);
    v1::LeaseEntry* entry = request.add_entries();
    entry->set_flag("cudnn.benchmark_limit");
    entry->mutable_value()->set_int_(limit);
    return request;
  }
  absl::StatusOr<v1::AcquireLeaseResponse> Acquire(const v1::AcquireLeaseRequest& request) {
    grpc::ClientContext context;
    v1::AcquireLeaseResponse response;
    const grpc::Status status = leases_->AcquireLease(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }
  absl::StatusOr<v1::ReleaseLeaseResponse> Release(uint64_t lease) {
    grpc::ClientContext context;
    v1::ReleaseLeaseRequest request;
    request.set_lease_id(lease);
    v1::ReleaseLeaseResponse response;
    const grpc::Status status = leases_->ReleaseLease(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }
  absl::StatusOr<v1::FlagReading> Get(const std::string& flag) {
    grpc::ClientContext context;
    v1::GetFlagRequest request;
    request.set_flag(flag);
    v1::GetFlagResponse response;
    const grpc::Status status = flags_->GetFlag(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response.reading();
  }
  int64_t Limit() { return Get("cudnn.benchmark_limit")->value().int_(); }
  absl::Status SetLimit(int64_t limit) {
    grpc::ClientContext context;
    v1::SetFlagsRequest request;
    request.add_assignments()->set_flag("cudnn.benchmark_limit");
    request.mutable_assignments(0)->mutable_value()->set_int_(limit);
    v1::SetFlagsResponse response;
    return FromGrpc(flags_->SetFlags(&context, request, &response));
  }

  InProcessNode node_;
  std::unique_ptr<v1::FlagService::Stub> flags_ = v1::FlagService::NewStub(node_.channel);
  std::unique_ptr<v1::LeaseService::Stub> leases_ = v1::LeaseService::NewStub(node_.channel);
  std::unique_ptr<v1::SessionService::Stub> sessions_ = v1::SessionService::NewStub(node_.channel);
};

}  // namespace backendd::node

#endif  // BACKENDD_TESTS_COMPONENT_CONTROL_PLANE_H_
