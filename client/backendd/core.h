// What stands behind Session and its handles. Not installed.
#ifndef BACKENDD_CLIENT_BACKENDD_CORE_H_
#define BACKENDD_CLIENT_BACKENDD_CORE_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "backendd/call.h"
#include "backendd/session.h"
#include "backendd/v1/compute_service.grpc.pb.h"
#include "backendd/v1/flag_service.grpc.pb.h"
#include "backendd/v1/lease_service.grpc.pb.h"
#include "backendd/v1/session_service.grpc.pb.h"
#include "shared/fd/arena.h"
#include "shared/fd/channel.h"
#include "shared/sync.h"

namespace backendd {

using SessionStream = grpc::ClientReaderWriter<v1::OpenSessionRequest, v1::OpenSessionResponse>;

// A lease that this session has; its request takes it again for a new session.
struct LeaseRecord {
  v1::AcquireLeaseRequest request;
  v1::Lease grant;
  bool lost = false;
};

// A buffer that this session has. An arena's fd gives it to a new session or a new worker again.
struct BufferRecord {
  uint64_t id = 0;
  uint64_t bytes = 0;
  std::string device;
  Fd arena;
  Mapping mapping;
};

// The way to one device's worker, for one session and one device epoch.
struct WorkerLink {
  std::string device;
  uint64_t session = 0, epoch = 0;
  std::string grant;  // 32 hex digits
  std::string socket;
  std::unique_ptr<v1::ComputeService::Stub> stub;
  Mutex mutex;  // of the channel: one request at a time
  std::optional<FdChannel> fds ABSL_GUARDED_BY(mutex);
  uint64_t next_request ABSL_GUARDED_BY(mutex) = 1;
};

// Shared by Session and its handles; any thread. Lock order: workers_mutex_, mutex_; stream_mutex_
// is taken alone. Stop() says goodbye and ends both threads.
class SessionCore {
 public:
  static absl::StatusOr<std::shared_ptr<SessionCore>> Open(std::shared_ptr<grpc::Channel> channel,
                                                           std::string address,
                                                           absl::Duration deadline,
                                                           SessionOptions options);
  ~SessionCore();
  void Stop();

  // SESSION_FORKED in a child, SESSION_UNKNOWN after Stop.
  absl::Status Check() const;
  uint64_t id() const;
  uint64_t revision() const;
  void SawRevision(uint64_t revision);
  bool connected() const;
  absl::Duration deadline() const { return deadline_; }

  template <class Service, class Stub, class Request, class Response>
  absl::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response,
                    absl::Duration more = absl::ZeroDuration()) {
    if (absl::Status usable = Check(); !usable.ok()) return usable;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline_ + more));
    typename Service::Stub stub(channel_);
    return WithReason(FromGrpc((stub.*method)(&context, request, response)), address_);
  }

  absl::StatusOr<std::shared_ptr<LeaseRecord>> Acquire(v1::AcquireLeaseRequest request);
  absl::Status Release(LeaseRecord& lease);
  absl::StatusOr<v1::Lease> Grant(const LeaseRecord& lease) const;  // LEASE_STALE when it is lost
  v1::Lease LastGrant(const LeaseRecord& lease) const;
  void Granted(LeaseRecord& lease, const v1::AcquireLeaseRequest& request, const v1::Lease& grant);
  void RememberPrivate(const FlagSettings& settings);
  void ForgetPrivate(const std::vector<std::string>& flags);

  absl::Status WaitServing(const std::string& device, absl::Duration timeout);
  // Best effort: a worker that is gone has forgotten it.
  void ReleaseProgram(WorkerLink& link, uint64_t program);
  // The link of now; a new one has the session's buffers already. Errors: DEVICE_UNKNOWN,
  // WORKER_STARTING, DEVICE_LOST, DEVICE_DOWN, DAEMON_UNREACHABLE.
  absl::StatusOr<std::shared_ptr<WorkerLink>> Worker(const std::string& device);
  absl::StatusOr<std::shared_ptr<BufferRecord>> Allocate(const std::string& device, uint64_t bytes,
                                                         bool mapped, uint64_t id);
  absl::Status Free(uint64_t buffer);
  uint64_t NewId();  // of a buffer or a prepared program

  template <class Request, class Response>
  absl::Status Compute(const std::string& device,
                       grpc::Status (v1::ComputeService::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                       const Request& request, Response* response,
                       absl::Duration deadline = absl::ZeroDuration()) {
    absl::StatusOr<std::shared_ptr<WorkerLink>> link = Worker(device);
    if (!link.ok()) return link.status();
    return Compute(**link, method, request, response, deadline);
  }

  template <class Method, class Request, class Response>
  absl::Status Compute(WorkerLink& link, Method method, const Request& request, Response* response,
                       absl::Duration deadline = absl::ZeroDuration()) {
    grpc::ClientContext context;
    if (deadline == absl::ZeroDuration()) deadline = deadline_;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    context.AddMetadata("backendd-grant", link.grant);
    return FromWorker(link, FromGrpc((link.stub.get()->*method)(&context, request, response)));
  }

 private:
  SessionCore(std::shared_ptr<grpc::Channel> channel, std::string address, absl::Duration deadline,
              SessionOptions options);

  // DEVICE_LOST where the worker died before it answered; WaitServing then waits for the next one.
  absl::Status FromWorker(const WorkerLink& link, absl::Status status);
  absl::Status MakeBuffer(WorkerLink& link, BufferRecord& record, bool mapped);
  absl::StatusOr<Frame> CallFds(WorkerLink& link, Frame frame, const std::string& path);

  void Read();  // the thread that has the stream
  void Beat();  // the thread that renews
  absl::Status ReadOnce(bool* welcomed);
  void Welcomed(const v1::Welcome& welcome);
  void Restore();
  void Tell(const SessionEvent& event);
  absl::Duration SteadyNow() const;

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string address_;
  const absl::Duration deadline_;
  const SessionOptions options_;
  const pid_t pid_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);  // why the first connection failed
  bool first_failed_ ABSL_GUARDED_BY(mutex_) = false;
  v1::Welcome welcome_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::DeviceGrant> grants_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> lost_ ABSL_GUARDED_BY(mutex_);  // epochs that were seen to end
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration ttl_ ABSL_GUARDED_BY(mutex_);
  absl::Duration alive_ ABSL_GUARDED_BY(mutex_);  // when the last acknowledged frame was sent
  std::map<uint64_t, absl::Duration> sent_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<LeaseRecord*, std::shared_ptr<LeaseRecord>> leases_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, FlagValue> private_ ABSL_GUARDED_BY(mutex_);

  mutable Mutex stream_mutex_;
  std::shared_ptr<SessionStream> stream_ ABSL_GUARDED_BY(stream_mutex_);
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(stream_mutex_);
  absl::Duration connecting_ ABSL_GUARDED_BY(stream_mutex_);  // since when, till the welcome

  Mutex workers_mutex_;
  std::map<std::string, std::shared_ptr<WorkerLink>> links_ ABSL_GUARDED_BY(workers_mutex_);
  std::map<uint64_t, std::shared_ptr<BufferRecord>> buffers_ ABSL_GUARDED_BY(workers_mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(workers_mutex_) = 1;

  std::thread reader_, beater_;
};

v1::AcquireLeaseRequest ToProto(const LeaseRequest& request, v1::ScopeKind scope);
std::string RequestId();

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_CORE_H_
