#include "client/cli/held_lease.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/assignments.h"
#include "client/cli/duration.h"
#include "client/cli/value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd::cli {

std::vector<Option> HoldOptions() {
  return {DeviceOption(),
          {"--exclusive", "", "let no other session lease these flags"},
          {"--priority", "N", "higher wins"},
          {"--owner", "NAME", "a name that groups leases: slurm-job:4711"},
          {"--reason", "TEXT", "why; shown to others"},
          {"--wait", "TIME", "wait in line this long: 30s"}};
}

absl::StatusOr<v1::HoldLeaseRequest> HoldRequest(const Connection& connection,
                                                 const Arguments& arguments,
                                                 const std::vector<std::string>& assignments) {
  v1::HoldLeaseRequest request;
  ASSIGN_OR_RETURN(const auto values, ReadAssignments(connection, assignments));
  for (const auto& [flag, value] : values) {
    v1::LeaseEntry* entry = request.add_entries();
    entry->set_flag(flag);
    *entry->mutable_scope() = ScopeOf(arguments);
    *entry->mutable_value() = value;
  }
  if (arguments.Has("--exclusive")) request.set_mode(v1::LEASE_MODE_EXCLUSIVE);
  if (arguments.Has("--priority")) {
    int priority = 0;
    if (!absl::SimpleAtoi(arguments.Get("--priority"), &priority)) {
      return Error(
          Reason::kArgumentInvalid,
          absl::StrCat("--priority ", arguments.Get("--priority"), " is not a whole number"));
    }
    request.set_priority(priority);
  }
  request.set_owner(arguments.Get("--owner"));
  request.set_reason(arguments.Get("--reason"));
  if (arguments.Has("--wait")) {
    ASSIGN_OR_RETURN(const absl::Duration wait, ParseDuration(arguments.Get("--wait")));
    ToProto(wait, request.mutable_wait());
  }
  if (arguments.Has("--max-hold")) {
    ASSIGN_OR_RETURN(const absl::Duration hold, ParseDuration(arguments.Get("--max-hold")));
    ToProto(hold, request.mutable_max_hold());
  }
  return request;
}

HeldLease::HeldLease(const Connection& connection, const v1::HoldLeaseRequest& request)
    : stub_(v1::LeaseService::NewStub(connection.channel())),
      ready_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {
  connection.Show(request);
  stream_ = stub_->HoldLease(&context_, request);
  reader_ = std::thread([this] { Read(); });
}

HeldLease::~HeldLease() {
  context_.TryCancel();
  reader_.join();
  close(ready_fd_);
}

std::optional<HeldLease::Event> HeldLease::Next() {
  MutexLock lock(&mutex_);
  if (events_.empty()) return std::nullopt;
  uint64_t one;
  (void)!read(ready_fd_, &one, sizeof(one));
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void HeldLease::Read() {
  for (v1::HoldLeaseResponse message; stream_->Read(&message);) Push(std::move(message));
  Push(FromGrpc(stream_->Finish()));
}

void HeldLease::Push(Event event) {
  MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
  const uint64_t one = 1;
  (void)!write(ready_fd_, &one, sizeof(one));
}

}  // namespace backendd::cli
