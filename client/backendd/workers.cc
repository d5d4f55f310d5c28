// The session's way to the devices' workers, and the buffers it has there.
#include <fcntl.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/backendd/core.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd {

absl::Status SessionCore::WaitServing(const std::string& device, absl::Duration timeout) {
  RETURN_IF_ERROR(Check());
  const absl::Duration until = SteadyNow() + timeout;
  MutexLock lock(&mutex_);
  while (true) {
    const auto found = grants_.find(device);
    const auto lost = lost_.find(device);
    if (found != grants_.end() && found->second.state() == v1::DEVICE_STATE_SERVING &&
        (lost == lost_.end() || lost->second != found->second.device_epoch()))
      return absl::OkStatus();
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      lost_.erase(device);  // perhaps only a connection broke
      if (found == grants_.end())
        return Error(Reason::kDeviceUnknown, absl::StrCat("no device '", device, "' here"));
      return Error(Reason::kWorkerStarting,
                   absl::StrCat("device '", device, "' does not serve after ",
                                absl::FormatDuration(timeout)));
    }
    changed_.WaitWithTimeout(&mutex_, left);
  }
}

absl::StatusOr<std::shared_ptr<WorkerLink>> SessionCore::Worker(const std::string& device) {
  RETURN_IF_ERROR(Check());
  v1::DeviceGrant grant;
  uint64_t session;
  {
    MutexLock lock(&mutex_);
    const auto found = grants_.find(device);
    if (found == grants_.end())
      return Error(Reason::kDeviceUnknown, absl::StrCat("no device '", device, "' here"),
                   {{"device", device}});
    grant = found->second;
    session = welcome_.session_id();
  }
  switch (grant.state()) {
    case v1::DEVICE_STATE_STARTING:
      return Error(Reason::kWorkerStarting, absl::StrCat("device '", device, "' starts"));
    case v1::DEVICE_STATE_LOST:
      return Error(Reason::kDeviceLost, absl::StrCat("the worker of '", device, "' died"));
    case v1::DEVICE_STATE_DOWN:
    case v1::DEVICE_STATE_ABSENT:
      return Error(Reason::kDeviceDown, absl::StrCat("device '", device, "' is down"));
    default:
      break;
  }
  MutexLock lock(&workers_mutex_);
  std::shared_ptr<WorkerLink>& link = links_[device];
  if (link != nullptr && link->session == session && link->epoch == grant.device_epoch())
    return link;
  auto fresh = std::make_shared<WorkerLink>();
  fresh->device = device;
  fresh->session = session;
  fresh->epoch = grant.device_epoch();
  fresh->grant = absl::BytesToHexString(grant.token());
  fresh->socket = grant.socket();
  fresh->stub = v1::ComputeService::NewStub(UnixChannel(grant.socket()));
  for (auto& [id, record] : buffers_) {
    if (record->device == device)
      RETURN_IF_ERROR(MakeBuffer(*fresh, *record, record->mapping.data() != nullptr));
  }
  link = fresh;
  return link;
}

absl::Status SessionCore::FromWorker(const WorkerLink& link, absl::Status status) {
  const std::optional<Reason> reason = ReasonOf(status);
  const bool gone = absl::IsCancelled(status) || absl::IsUnavailable(status);
  if (!reason && gone) {
    status = Error(Reason::kDeviceLost,
                   absl::StrCat("the worker of '", link.device, "' ended before it answered (",
                                status.message(), ")"),
                   {{"device", link.device}, {"old_epoch", absl::StrCat(link.epoch)}});
  }
  if (ReasonOf(status) == Reason::kDeviceLost) {
    MutexLock lock(&mutex_);
    lost_[link.device] = link.epoch;
  }
  return WithReason(std::move(status), link.socket);
}

absl::StatusOr<Frame> SessionCore::CallFds(WorkerLink& link, Frame frame, const std::string& path) {
  MutexLock lock(&link.mutex);
  frame.session = link.session;
  if (!link.fds) {
    ASSIGN_OR_RETURN(FdChannel channel, FdChannel::Connect(View(path)));
    Frame hello;
    hello.kind = FrameKind::kHello;
    hello.request = link.next_request++;
    hello.session = link.session;
    hello.payload = absl::HexStringToBytes(link.grant);
    RETURN_IF_ERROR(FromWorker(link, channel.Call(hello, deadline_).status()));
    link.fds = std::move(channel);
  }
  frame.request = link.next_request++;
  absl::StatusOr<Frame> answer = link.fds->Call(frame, deadline_);
  if (answer.ok()) return answer;
  link.fds.reset();  // the next call opens another one
  return FromWorker(link, answer.status());
}

// Arenas come from the worker once; later workers and sessions import the same memory.
absl::Status SessionCore::MakeBuffer(WorkerLink& link, BufferRecord& record, bool mapped) {
  if (!mapped) {
    v1::AllocateBuffersRequest request;
    request.set_session_id(link.session);
    v1::BufferSpec* spec = request.add_buffers();
    spec->set_buffer(record.id);
    spec->set_bytes(record.bytes);
    v1::AllocateBuffersResponse response;
    return Compute(link, &v1::ComputeService::Stub::AllocateBuffers, request, &response);
  }
  std::string path;
  {
    MutexLock lock(&mutex_);
    path = grants_[record.device].fd_socket();
  }
  Frame frame;
  frame.buffer = record.id;
  frame.length = record.bytes;
  if (record.arena) {
    frame.kind = FrameKind::kImport;
    frame.fds.emplace_back(fcntl(record.arena.get(), F_DUPFD_CLOEXEC, 0));
    return CallFds(link, std::move(frame), path).status();
  }
  frame.kind = FrameKind::kCreateArena;
  ASSIGN_OR_RETURN(Frame answer, CallFds(link, std::move(frame), path));
  if (answer.kind != FrameKind::kArena || answer.fds.size() != 1)
    return Error(Reason::kFrameInvalid, "the worker's answer carries no arena");
  RETURN_IF_ERROR(CheckImport(answer.fds[0].get(), 0, record.bytes).status());
  ASSIGN_OR_RETURN(record.mapping, MapShared(answer.fds[0].get(), 0, record.bytes));
  record.arena = std::move(answer.fds[0]);
  return absl::OkStatus();
}

uint64_t SessionCore::NewId() {
  MutexLock lock(&workers_mutex_);
  return next_id_++;
}

absl::StatusOr<std::shared_ptr<BufferRecord>> SessionCore::Allocate(const std::string& device,
                                                                    uint64_t bytes, bool mapped,
                                                                    uint64_t id) {
  ASSIGN_OR_RETURN(const std::shared_ptr<WorkerLink> link, Worker(device));
  auto record = std::make_shared<BufferRecord>();
  record->id = id;
  record->bytes = bytes;
  record->device = device;
  RETURN_IF_ERROR(MakeBuffer(*link, *record, mapped));
  MutexLock lock(&workers_mutex_);
  buffers_[id] = record;
  return record;
}

absl::Status SessionCore::Free(uint64_t buffer) {
  std::string device;
  std::shared_ptr<WorkerLink> link;
  {
    MutexLock lock(&workers_mutex_);
    const auto found = buffers_.find(buffer);
    if (found == buffers_.end()) return absl::OkStatus();
    link = links_[found->second->device];
    buffers_.erase(found);
  }
  RETURN_IF_ERROR(Check());
  if (link == nullptr || link->session != id()) return absl::OkStatus();  // gone with its session
  v1::FreeBuffersRequest request;
  request.set_session_id(link->session);
  request.add_buffers(buffer);
  v1::FreeBuffersResponse response;
  return Compute(*link, &v1::ComputeService::Stub::FreeBuffers, request, &response);
}

void SessionCore::ReleaseProgram(WorkerLink& link, uint64_t program) {
  if (!Check().ok()) return;
  v1::ReleaseProgramRequest request;
  request.set_session_id(link.session);
  request.set_program_id(program);
  v1::ReleaseProgramResponse response;
  Compute(link, &v1::ComputeService::Stub::ReleaseProgram, request, &response).IgnoreError();
}

}  // namespace backendd
