#include "client/backendd/core.h"

#include <unistd.h>

#include <algorithm>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "shared/clock.h"
#include "shared/convert/flag_value.h"
#include "shared/ids.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd {
namespace {

google::protobuf::Duration ToProto(absl::Duration duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(
      absl::ToInt64Nanoseconds(duration));
}
absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Nanoseconds(google::protobuf::util::TimeUtil::DurationToNanoseconds(duration));
}

absl::Duration Jitter(absl::Duration duration, double part) {
  thread_local absl::BitGen random;
  return duration * absl::Uniform(random, 1 - part, 1 + part);
}

}  // namespace

std::string RequestId() { return absl::StrFormat("%016x", RandomId<SessionId>().value()); }

SessionCore::SessionCore(std::shared_ptr<grpc::Channel> channel, std::string address,
                         absl::Duration deadline, SessionOptions options)
    : channel_(std::move(channel)),
      address_(std::move(address)),
      deadline_(deadline),
      options_(std::move(options)),
      pid_(getpid()) {
  ttl_ = options_.ttl;
}

absl::StatusOr<std::shared_ptr<SessionCore>> SessionCore::Open(
    std::shared_ptr<grpc::Channel> channel, std::string address, absl::Duration deadline,
    SessionOptions options) {
  // In a forked child the threads are gone and gRPC's state is the parent's: nothing is touched.
  std::shared_ptr<SessionCore> core(
      new SessionCore(std::move(channel), std::move(address), deadline, std::move(options)),
      [](SessionCore* self) {
        if (getpid() == self->pid_) delete self;
      });
  core->reader_ = std::thread([self = core.get()] { self->Read(); });
  core->beater_ = std::thread([self = core.get()] { self->Beat(); });
  {
    MutexLock lock(&core->mutex_);
    while (!core->connected_ && !core->first_failed_) core->changed_.Wait(&core->mutex_);
    if (core->connected_) return core;
  }
  core->Stop();
  MutexLock lock(&core->mutex_);
  return core->first_;
}

SessionCore::~SessionCore() { Stop(); }

void SessionCore::Stop() {
  if (getpid() != pid_) return;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
    changed_.SignalAll();
  }
  {
    MutexLock lock(&stream_mutex_);
    if (context_ != nullptr) {
      if (connecting_ != absl::ZeroDuration()) {
        context_->TryCancel();
      } else {
        v1::OpenSessionRequest frame;
        frame.mutable_goodbye();
        stream_->WriteLast(frame, grpc::WriteOptions());
        connecting_ = SteadyNow();  // the beater cancels what does not end
      }
    }
  }
  if (reader_.joinable()) reader_.join();
  if (beater_.joinable()) beater_.join();
}

absl::Duration SessionCore::SteadyNow() const { return SystemClock().Steady(); }

absl::Status SessionCore::Check() const {
  if (getpid() != pid_) {
    return Error(Reason::kSessionForked,
                 "this session belongs to the parent process; start children with spawn, or open a "
                 "session in each");
  }
  MutexLock lock(&mutex_);
  if (stopping_) return Error(Reason::kSessionUnknown, "the session has ended");
  return absl::OkStatus();
}

uint64_t SessionCore::id() const {
  MutexLock lock(&mutex_);
  return welcome_.session_id();
}

uint64_t SessionCore::revision() const {
  MutexLock lock(&mutex_);
  return revision_;
}

void SessionCore::SawRevision(uint64_t revision) {
  MutexLock lock(&mutex_);
  revision_ = std::max(revision_, revision);
}

bool SessionCore::connected() const {
  if (getpid() != pid_) return false;
  MutexLock lock(&mutex_);
  return connected_;
}

void SessionCore::Tell(const SessionEvent& event) {
  if (options_.on_event) options_.on_event(event);
}

void SessionCore::Read() {
  absl::Duration pause = absl::Milliseconds(50);
  bool ever = false;
  while (true) {
    bool welcomed = false;
    const absl::Status end = ReadOnce(&welcomed);
    ever |= welcomed;
    {
      MutexLock lock(&mutex_);
      connected_ = false;
      if (!ever) {
        first_failed_ = true;
        first_ =
            end.ok() ? Error(Reason::kDaemonUnreachable, "the stream ended before a welcome") : end;
      }
      changed_.SignalAll();
      if (stopping_ || !ever) return;
    }
    if (welcomed) {
      Tell(Disconnected{end});
      pause = absl::Milliseconds(50);
    }
    MutexLock lock(&mutex_);
    if (!stopping_) changed_.WaitWithTimeout(&mutex_, Jitter(pause, 0.2));
    if (stopping_) return;
    pause = std::min(pause * 2, absl::Seconds(5));
  }
}

absl::Status SessionCore::ReadOnce(bool* welcomed) {
  v1::SessionService::Stub stub(channel_);
  auto context = std::make_shared<grpc::ClientContext>();
  v1::OpenSessionRequest request;
  v1::Hello& hello = *request.mutable_hello();
  hello.set_name(options_.name);
  hello.mutable_labels()->insert(options_.labels.begin(), options_.labels.end());
  *hello.mutable_ttl() = ToProto(options_.ttl);
  if (options_.resume_grace != absl::ZeroDuration())
    *hello.mutable_resume_grace() = ToProto(options_.resume_grace);
  const absl::Duration sent = SteadyNow();
  std::shared_ptr<SessionStream> stream;
  {
    MutexLock lock(&mutex_);
    if (welcome_.session_id() != 0) {
      hello.set_session_id(welcome_.session_id());
      hello.set_resume_token(welcome_.resume_token());
    }
  }
  {
    MutexLock lock(&stream_mutex_);
    context_ = context;
    connecting_ = sent;
  }
  // May wait for a daemon that accepts and says nothing: what cancels it must not wait for the
  // lock.
  stream = stub.OpenSession(context.get());
  stream->Write(request);
  {
    MutexLock lock(&stream_mutex_);
    stream_ = stream;
  }
  v1::OpenSessionResponse frame;
  while (stream->Read(&frame)) {
    switch (frame.frame_case()) {
      case v1::OpenSessionResponse::kWelcome: {
        {
          MutexLock lock(&stream_mutex_);
          connecting_ = absl::ZeroDuration();
        }
        {
          MutexLock lock(&mutex_);
          alive_ = sent;
          sent_.clear();
        }
        *welcomed = true;
        Welcomed(frame.welcome());
        break;
      }
      case v1::OpenSessionResponse::kHeartbeatAck: {
        MutexLock lock(&mutex_);
        const auto found = sent_.find(frame.heartbeat_ack().sequence());
        if (found == sent_.end()) break;
        alive_ = found->second;
        sent_.erase(sent_.begin(), std::next(found));
        break;
      }
      case v1::OpenSessionResponse::kLeaseEvent: {
        if (frame.lease_event().what_case() == v1::LeaseEvent::kLost) {
          MutexLock lock(&mutex_);
          for (auto& [key, lease] : leases_)
            lease->lost |= lease->grant.lease_id() == frame.lease_event().lease_id();
        }
        Tell(frame.lease_event());
        break;
      }
      case v1::OpenSessionResponse::kDeviceEvent: {
        const v1::DeviceEvent& event = frame.device_event();
        {
          MutexLock lock(&mutex_);
          v1::DeviceGrant& grant = grants_[event.device()];
          grant.set_state(event.state());
          grant.set_device_epoch(event.new_epoch());
          changed_.SignalAll();
        }
        Tell(event);
        break;
      }
      case v1::OpenSessionResponse::kDraining:
        Tell(frame.draining());
        break;
      case v1::OpenSessionResponse::FRAME_NOT_SET:
        break;
    }
  }
  {
    MutexLock lock(&stream_mutex_);
    stream_ = nullptr;
    context_ = nullptr;
    connecting_ = absl::ZeroDuration();
  }
  const absl::Status end = FromGrpc(stream->Finish());
  if (!*welcomed && absl::IsCancelled(end))  // by the beater
    return Error(Reason::kDeadlineExceeded, absl::StrCat(address_, " did not answer in time"));
  return WithReason(end, address_);
}

void SessionCore::Welcomed(const v1::Welcome& welcome) {
  bool first, same;
  {
    MutexLock lock(&mutex_);
    first = welcome_.session_id() == 0;
    same = welcome.continuity() == v1::SESSION_CONTINUITY_RESUMED;
    if (!same) revision_ = 0;  // another boot may count from elsewhere
    welcome_ = welcome;
    ttl_ = FromProto(welcome.ttl());
    revision_ = std::max(revision_, welcome.revision());
    grants_.clear();
    for (const v1::DeviceGrant& grant : welcome.devices()) grants_[grant.device()] = grant;
  }
  if (!first && !same) Restore();
  {
    MutexLock lock(&mutex_);
    connected_ = true;
    changed_.SignalAll();
  }
  if (!first) Tell(Reconnected{same});
}

// Takes for the new session what the old one had. Buffers follow with the next use of their worker.
void SessionCore::Restore() {
  std::vector<std::shared_ptr<LeaseRecord>> leases;
  std::map<std::string, FlagValue> values;
  {
    MutexLock lock(&mutex_);
    for (auto& [key, lease] : leases_)
      if (!lease->lost) leases.push_back(lease);
    std::sort(leases.begin(), leases.end(), [](const auto& a, const auto& b) {
      return a->grant.revision() < b->grant.revision();  // SHARED stacks in the order of its grants
    });
    values = private_;
  }
  if (!values.empty()) {
    v1::SetFlagsRequest request;
    request.set_session_id(id());
    request.set_request_id(RequestId());
    for (const auto& [flag, value] : values) {
      auto* assignment = request.add_assignments();
      assignment->set_flag(flag);
      *assignment->mutable_value() = ToProto(value);
    }
    v1::SetFlagsResponse response;
    if (Call<v1::FlagService>(&v1::FlagService::Stub::SetFlags, request, &response).ok())
      SawRevision(response.revision());
  }
  for (const auto& lease : leases) {
    LeaseReacquired event{LastGrant(*lease).lease_id(), v1::Lease()};
    v1::AcquireLeaseRequest request = lease->request;
    request.set_session_id(id());
    request.set_request_id(RequestId());
    request.clear_wait();
    v1::AcquireLeaseResponse response;
    const absl::Status status =
        Call<v1::LeaseService>(&v1::LeaseService::Stub::AcquireLease, request, &response);
    if (status.ok()) {
      Granted(*lease, request, response.lease());
      event.grant = response.lease();
    } else {
      MutexLock lock(&mutex_);
      lease->lost = true;
      event.grant = status;
    }
    Tell(event);
  }
}

void SessionCore::Beat() {
  MutexLock lock(&mutex_);
  while (true) {
    // Often enough to see a connection that is not answered; else when the next heartbeat is due.
    const absl::Duration due = connected_ ? ttl_ / 3 : absl::Seconds(1);
    changed_.WaitWithTimeout(&mutex_, stopping_ ? absl::Milliseconds(100) : Jitter(due, 0.1));
    const bool stopping = stopping_, connected = connected_;
    const absl::Duration now = SteadyNow();
    v1::OpenSessionRequest frame;
    if (connected && !stopping) {
      frame.mutable_heartbeat()->set_sequence(++sequence_);
      sent_[sequence_] = now;
    }
    mutex_.Unlock();
    bool ended = stopping;
    {
      MutexLock stream_lock(&stream_mutex_);
      if (context_ != nullptr) {
        ended = false;
        const absl::Duration limit = stopping ? absl::Seconds(1) : deadline_;
        if (connecting_ != absl::ZeroDuration() && now - connecting_ > limit) {
          context_->TryCancel();
        } else if (connected && !stopping && stream_ != nullptr) {
          stream_->Write(frame);
        }
      }
    }
    mutex_.Lock();
    if (ended) return;
  }
}

absl::StatusOr<std::shared_ptr<LeaseRecord>> SessionCore::Acquire(v1::AcquireLeaseRequest request) {
  request.set_session_id(id());
  request.set_request_id(RequestId());
  v1::AcquireLeaseResponse response;
  RETURN_IF_ERROR(Call<v1::LeaseService>(&v1::LeaseService::Stub::AcquireLease, request, &response,
                                         FromProto(request.wait())));
  auto record = std::make_shared<LeaseRecord>();
  Granted(*record, request, response.lease());
  MutexLock lock(&mutex_);
  leases_[record.get()] = record;
  return record;
}

void SessionCore::Granted(LeaseRecord& lease, const v1::AcquireLeaseRequest& request,
                          const v1::Lease& grant) {
  MutexLock lock(&mutex_);
  lease.request = request;
  lease.grant = grant;
  lease.lost = false;
  revision_ = std::max({revision_, grant.revision(), grant.token()});
}

absl::Status SessionCore::Release(LeaseRecord& lease) {
  {
    MutexLock lock(&mutex_);
    if (leases_.erase(&lease) == 0) return absl::OkStatus();
    if (lease.lost) return absl::OkStatus();
  }
  v1::ReleaseLeaseRequest request;
  request.set_lease_id(LastGrant(lease).lease_id());
  request.set_session_id(id());
  request.set_request_id(RequestId());
  v1::ReleaseLeaseResponse response;
  RETURN_IF_ERROR(
      Call<v1::LeaseService>(&v1::LeaseService::Stub::ReleaseLease, request, &response));
  SawRevision(response.revision());
  return absl::OkStatus();
}

v1::Lease SessionCore::LastGrant(const LeaseRecord& lease) const {
  MutexLock lock(&mutex_);
  return lease.grant;
}

absl::StatusOr<v1::Lease> SessionCore::Grant(const LeaseRecord& lease) const {
  RETURN_IF_ERROR(Check());
  MutexLock lock(&mutex_);
  const absl::Duration silent = SteadyNow() - alive_;
  if (lease.lost || silent >= ttl_) {
    return Error(
        Reason::kLeaseStale,
        lease.lost ? std::string("the lease is lost")
                   : absl::StrCat("the daemon has not answered for ", absl::FormatDuration(silent),
                                  ", the session's TTL is ", absl::FormatDuration(ttl_)));
  }
  return lease.grant;
}

void SessionCore::RememberPrivate(const FlagSettings& settings) {
  MutexLock lock(&mutex_);
  for (const auto& [flag, value] : settings) private_[flag] = value;
}

void SessionCore::ForgetPrivate(const std::vector<std::string>& flags) {
  MutexLock lock(&mutex_);
  for (const std::string& flag : flags) private_.erase(flag);
}

}  // namespace backendd
