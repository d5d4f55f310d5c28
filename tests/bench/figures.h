// The figures that the project has set itself, each measured beside its floor.
#ifndef BACKENDD_TESTS_BENCH_FIGURES_H_
#define BACKENDD_TESTS_BENCH_FIGURES_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "shared/status/grpc_status.h"
#include "tests/bench/stats.h"

namespace backendd::bench {

struct Options {
  std::string socket;        // of the daemon
  std::string empty_socket;  // of the empty server
  std::string self;          // this program, which is also the holder that is killed
  int blocks = 30;
  int calls = 100;  // of each side in a quarter of a block
  int trials = 200;
  int leases = 10'000;
  int products = 4;  // in a quarter of a block
};

// A row of the table. A figure that could not be had says why in `note`, and the run fails.
struct Row {
  std::string name, measured, floor, ratio, goal;
  bool reached = false;
  std::string note = {};
};

using Channel = std::shared_ptr<grpc::Channel>;
Channel ChannelTo(const std::string& socket);

// A session on a stream of its own; ends with this object. One thread writes, one reads.
class RawSession {
 public:
  static absl::StatusOr<std::unique_ptr<RawSession>> Open(const Channel& channel,
                                                          const std::string& name,
                                                          absl::Duration ttl);
  ~RawSession();

  uint64_t id() const { return welcome_.session_id(); }
  const v1::Welcome& welcome() const { return welcome_; }
  bool Read(v1::OpenSessionResponse* event) { return stream_->Read(event); }
  void Cancel() { context_.TryCancel(); }
  // Says goodbye; a reader sees the stream's end.
  void Goodbye();

 private:
  RawSession() = default;
  grpc::ClientContext context_;
  std::unique_ptr<v1::SessionService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>>
      stream_;
  v1::Welcome welcome_;
  bool said_goodbye_ = false;
};

// The row with why it could not be measured.
Row Failed(Row row, const absl::Status& status);

// A unary call, timed; its status is kept in `error` if it fails. With `grant` as metadata if
// given.
template <class Stub, class Request, class Response>
Timed Unary(Stub& stub,
            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, absl::Status* error, const std::string& grant = "") {
  return [&stub, method, request, error, grant] {
    grpc::ClientContext context;
    if (!grant.empty()) context.AddMetadata("backendd-grant", grant);
    Response response;
    const double begin = NowUs();
    const grpc::Status status = (stub.*method)(&context, request, &response);
    const double us = NowUs() - begin;
    if (!status.ok()) *error = FromGrpc(status);
    return status.ok() ? us : -1.0;
  };
}

// Fills the row with the ratio of `call` to the empty server's call. `error` is where `call` says
// what went wrong.
Row AgainstEmpty(Row row, double goal, const Options& options, const Timed& call,
                 const absl::Status& error);

Row IdleMemory(const Options& options);
Row GetFlag(const Options& options);
Row AcquireLease(const Options& options);
Row Rollback(const Options& options);
Row ExpiryStorm(const Options& options);
Row NullProgram(const Options& options);
Row ArenaHandOver(const Options& options);
Row Sgemm(const Options& options);

// The process that is killed: takes a lease, says so on stdout, waits for its end.
int HoldUntilKilled(const std::string& socket);

}  // namespace backendd::bench

#endif  // BACKENDD_TESTS_BENCH_FIGURES_H_
