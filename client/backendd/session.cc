// Session and the handles it gives: leases, overlays, buffers.
#include "backendd/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/backendd/core.h"
#include "google/protobuf/util/time_util.h"
#include "shared/convert/flag_value.h"
#include "shared/status/error.h"
#include "shared/status/macros.h"

namespace backendd {
namespace {

constexpr uint64_t kChunk = 1 << 20;  // what WriteChunks and ReadChunks take at most

void AddEntries(const FlagSettings& flags, v1::ScopeKind kind, const std::string& device,
                google::protobuf::RepeatedPtrField<v1::LeaseEntry>* entries) {
  for (const auto& [flag, value] : flags) {
    v1::LeaseEntry* entry = entries->Add();
    entry->set_flag(flag);
    entry->mutable_scope()->set_kind(kind);
    entry->mutable_scope()->set_device(device);
    *entry->mutable_value() = ToProto(value);
  }
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  return google::protobuf::util::TimeUtil::NanosecondsToDuration(
      absl::ToInt64Nanoseconds(duration));
}

}  // namespace

v1::AcquireLeaseRequest ToProto(const LeaseRequest& request, v1::ScopeKind scope) {
  v1::AcquireLeaseRequest message;
  AddEntries(request.flags, scope, request.device, message.mutable_entries());
  message.set_mode(request.exclusive ? v1::LEASE_MODE_EXCLUSIVE : v1::LEASE_MODE_SHARED);
  if (request.ttl != absl::ZeroDuration()) *message.mutable_ttl() = ToProto(request.ttl);
  if (request.wait != absl::ZeroDuration()) *message.mutable_wait() = ToProto(request.wait);
  message.set_priority(request.priority);
  message.set_owner(request.owner);
  message.set_reason(request.reason);
  message.set_allow_shadowed(request.allow_shadowed);
  return message;
}

Session::~Session() {
  if (core_ != nullptr) core_->Stop();
}

uint64_t Session::id() const { return core_->id(); }
uint64_t Session::revision() const { return core_->revision(); }
bool Session::connected() const { return core_->connected(); }

absl::StatusOr<v1::FlagReading> Session::Get(const std::string& flag, const std::string& device) {
  RETURN_IF_ERROR(core_->Check());
  v1::GetFlagRequest request;
  request.set_flag(flag);
  request.set_session_id(core_->id());
  if (!device.empty()) request.set_device(device);
  v1::GetFlagResponse response;
  RETURN_IF_ERROR(
      core_->Call<v1::FlagService>(&v1::FlagService::Stub::GetFlag, request, &response));
  return response.reading();
}

absl::StatusOr<v1::SetFlagsResponse> Session::Set(const FlagSettings& settings) {
  RETURN_IF_ERROR(core_->Check());
  v1::SetFlagsRequest request;
  for (const auto& [flag, value] : settings) {
    v1::FlagAssignment* assignment = request.add_assignments();
    assignment->set_flag(flag);
    *assignment->mutable_value() = ToProto(value);
  }
  request.set_session_id(core_->id());
  request.set_request_id(RequestId());
  v1::SetFlagsResponse response;
  RETURN_IF_ERROR(
      core_->Call<v1::FlagService>(&v1::FlagService::Stub::SetFlags, request, &response));
  core_->SawRevision(response.revision());
  core_->RememberPrivate(settings);
  return response;
}

absl::StatusOr<v1::UnsetFlagsResponse> Session::Unset(const std::vector<std::string>& flags) {
  RETURN_IF_ERROR(core_->Check());
  v1::UnsetFlagsRequest request;
  request.mutable_flags()->Assign(flags.begin(), flags.end());
  request.set_session_id(core_->id());
  request.set_request_id(RequestId());
  v1::UnsetFlagsResponse response;
  RETURN_IF_ERROR(
      core_->Call<v1::FlagService>(&v1::FlagService::Stub::UnsetFlags, request, &response));
  core_->SawRevision(response.revision());
  core_->ForgetPrivate(flags);
  return response;
}

absl::StatusOr<Lease> Session::Acquire(const LeaseRequest& request, v1::ScopeKind scope) {
  RETURN_IF_ERROR(core_->Check());
  ASSIGN_OR_RETURN(auto record, core_->Acquire(ToProto(request, scope)));
  return Lease(core_, std::move(record));
}

absl::StatusOr<Lease> Session::Acquire(const LeaseRequest& request) {
  return Acquire(request, request.device.empty() ? v1::SCOPE_KIND_NODE : v1::SCOPE_KIND_DEVICE);
}

absl::StatusOr<ScopedFlags> Session::Flags(const FlagSettings& settings) {
  LeaseRequest request;
  request.flags = settings;
  ASSIGN_OR_RETURN(Lease lease, Acquire(request, v1::SCOPE_KIND_SESSION));
  return ScopedFlags(std::move(lease));
}

absl::Status Session::WaitServing(const std::string& device, absl::Duration timeout) {
  return core_->WaitServing(device, timeout);
}

absl::StatusOr<Buffer> Session::AllocateBuffer(const std::string& device, uint64_t bytes,
                                               bool mapped) {
  RETURN_IF_ERROR(core_->Check());
  ASSIGN_OR_RETURN(auto record, core_->Allocate(device, bytes, mapped, core_->NewId()));
  return Buffer(core_, std::move(record));
}

absl::StatusOr<Buffer> Session::AllocateArena(const std::string& device, uint64_t bytes) {
  return AllocateBuffer(device, bytes, true);
}

absl::StatusOr<Buffer> Session::Allocate(const std::string& device, uint64_t bytes) {
  return AllocateBuffer(device, bytes, false);
}

Program Session::NewProgram(const std::string& device) { return Program(core_, device); }

absl::StatusOr<v1::DescribeDeviceResponse> Session::DescribeDevice(const std::string& device) {
  v1::DescribeDeviceResponse response;
  RETURN_IF_ERROR(core_->Compute(device, &v1::ComputeService::Stub::DescribeDevice,
                                 v1::DescribeDeviceRequest(), &response));
  return response;
}

absl::StatusOr<std::vector<v1::PlanCache>> Session::PlanCaches(const std::string& device,
                                                               const std::string& kind) {
  v1::DescribePlanCacheRequest request;
  request.set_kind(kind);
  v1::DescribePlanCacheResponse response;
  RETURN_IF_ERROR(
      core_->Compute(device, &v1::ComputeService::Stub::DescribePlanCache, request, &response));
  return std::vector<v1::PlanCache>(response.caches().begin(), response.caches().end());
}

absl::StatusOr<uint64_t> Session::ClearPlanCache(const std::string& device,
                                                 const std::string& kind) {
  v1::ClearPlanCacheRequest request;
  request.set_kind(kind);
  v1::ClearPlanCacheResponse response;
  RETURN_IF_ERROR(
      core_->Compute(device, &v1::ComputeService::Stub::ClearPlanCache, request, &response));
  return response.dropped();
}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  (void)Release();
  core_ = std::move(other.core_);
  record_ = std::move(other.record_);
  return *this;
}

Lease::~Lease() { (void)Release(); }

uint64_t Lease::id() const { return core_->LastGrant(*record_).lease_id(); }
v1::Lease Lease::grant() const { return core_->LastGrant(*record_); }

absl::StatusOr<uint64_t> Lease::token() const {
  ASSIGN_OR_RETURN(const v1::Lease grant, core_->Grant(*record_));
  return grant.token();
}

absl::Status Lease::Renew() {
  ASSIGN_OR_RETURN(const v1::Lease grant, core_->Grant(*record_));
  v1::RenewLeaseRequest request;
  request.set_session_id(core_->id());
  request.set_lease_id(grant.lease_id());
  v1::RenewLeaseResponse response;
  return core_->Call<v1::LeaseService>(&v1::LeaseService::Stub::RenewLease, request, &response);
}

absl::Status Lease::Update(const FlagSettings& flags) {
  ASSIGN_OR_RETURN(const v1::Lease grant, core_->Grant(*record_));
  v1::AcquireLeaseRequest again = record_->request;
  const v1::Scope scope = again.entries_size() > 0 ? again.entries(0).scope() : v1::Scope();
  v1::UpdateLeaseRequest request;
  request.set_session_id(core_->id());
  request.set_lease_id(grant.lease_id());
  request.set_request_id(RequestId());
  AddEntries(flags, scope.kind(), scope.device(), request.mutable_set_entries());
  v1::UpdateLeaseResponse response;
  RETURN_IF_ERROR(
      core_->Call<v1::LeaseService>(&v1::LeaseService::Stub::UpdateLease, request, &response));
  for (const v1::LeaseEntry& entry : request.set_entries()) {
    const auto same =
        std::find_if(again.mutable_entries()->begin(), again.mutable_entries()->end(),
                     [&](const v1::LeaseEntry& old) { return old.flag() == entry.flag(); });
    (same == again.mutable_entries()->end() ? *again.add_entries() : *same) = entry;
  }
  core_->Granted(*record_, again, response.lease());
  return absl::OkStatus();
}

absl::Status Lease::Release() {
  if (core_ == nullptr || record_ == nullptr) return absl::OkStatus();  // moved from
  RETURN_IF_ERROR(core_->Check());
  return core_->Release(*record_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  (void)Free();
  core_ = std::move(other.core_);
  record_ = std::move(other.record_);
  return *this;
}

Buffer::~Buffer() { (void)Free(); }

uint64_t Buffer::id() const { return record_->id; }
uint64_t Buffer::size_bytes() const { return record_->bytes; }

std::span<std::byte> Buffer::data() const {
  return {record_->mapping.data(), record_->mapping.size()};
}

Tensor Buffer::View(DType dtype, absl::Span<const int64_t> shape, uint64_t offset) const {
  Tensor tensor{record_->id, offset, RowMajor(dtype, shape)};
  const std::optional<int64_t> bytes = SpanBytes(tensor.type);
  if (!bytes || offset > record_->bytes || static_cast<uint64_t>(*bytes) > record_->bytes - offset)
    return Tensor();
  return tensor;
}

absl::Status Buffer::Write(uint64_t offset, std::span<const std::byte> bytes) {
  for (uint64_t at = 0; at < bytes.size(); at += kChunk) {
    RETURN_IF_ERROR(core_->Check());
    const auto part = bytes.subspan(at, std::min<uint64_t>(kChunk, bytes.size() - at));
    v1::WriteChunksRequest request;
    request.set_session_id(core_->id());
    request.set_buffer(record_->id);
    request.set_offset(offset + at);
    request.set_bytes(part.data(), part.size());
    v1::WriteChunksResponse response;
    RETURN_IF_ERROR(core_->Compute(record_->device, &v1::ComputeService::Stub::WriteChunks, request,
                                   &response));
  }
  return absl::OkStatus();
}

absl::Status Buffer::Read(uint64_t offset, std::span<std::byte> bytes) const {
  for (uint64_t at = 0; at < bytes.size(); at += kChunk) {
    RETURN_IF_ERROR(core_->Check());
    const auto part = bytes.subspan(at, std::min<uint64_t>(kChunk, bytes.size() - at));
    v1::ReadChunksRequest request;
    request.set_session_id(core_->id());
    request.set_buffer(record_->id);
    request.set_offset(offset + at);
    request.set_length(part.size());
    v1::ReadChunksResponse response;
    RETURN_IF_ERROR(
        core_->Compute(record_->device, &v1::ComputeService::Stub::ReadChunks, request, &response));
    if (response.bytes().size() != part.size())
      return Error(Reason::kInternal, "the worker answered another number of bytes");
    std::copy_n(reinterpret_cast<const std::byte*>(response.bytes().data()), part.size(),
                part.begin());
  }
  return absl::OkStatus();
}

absl::Status Buffer::Free() {
  if (core_ == nullptr || record_ == nullptr) return absl::OkStatus();  // moved from
  return core_->Free(record_->id);
}

}  // namespace backendd
