// A lease that lives as long as one HoldLease call, and so no longer than this process.
#ifndef BACKENDD_CLIENT_CLI_HELD_LEASE_H_
#define BACKENDD_CLIENT_CLI_HELD_LEASE_H_

#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "client/cli/connection.h"
#include "shared/sync.h"

namespace backendd::cli {

// The options and the request of `lease hold` and `run`. Errors: those of ReadAssignments.
std::vector<Option> HoldOptions();
absl::StatusOr<v1::HoldLeaseRequest> HoldRequest(const Connection& connection,
                                                 const Arguments& arguments,
                                                 const std::vector<std::string>& assignments);

// Owned by one command; its thread reads the stream and ends with it. Events come through a
// descriptor, so that the owner waits for them beside signals. Destruction ends the lease.
class HeldLease {
 public:
  using Event = std::variant<v1::HoldLeaseResponse, absl::Status>;  // a status: the stream's end

  HeldLease(const Connection& connection, const v1::HoldLeaseRequest& request);
  ~HeldLease();
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;

  int ready_fd() const { return ready_fd_; }  // readable while Next() has something
  std::optional<Event> Next();

 private:
  void Read();
  void Push(Event event);

  grpc::ClientContext context_;
  std::unique_ptr<v1::LeaseService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::HoldLeaseResponse>> stream_;
  const int ready_fd_;
  Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  std::thread reader_;
};

}  // namespace backendd::cli

#endif  // BACKENDD_CLIENT_CLI_HELD_LEASE_H_
