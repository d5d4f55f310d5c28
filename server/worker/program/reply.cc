#include "server/worker/program/reply.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "shared/convert/flag_value.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr int64_t kMostNumbers = 64;  // for people

template <class T>
T At(const std::string& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// The elements as numbers a person can read; 16- and 8-bit floats as bytes alone.
void AddNumbers(DType dtype, int64_t count, v1::ReadResult* read) {
  const std::string& bytes = read->bytes();
  if (IsComplex(dtype)) count *= 2;
  if (count > kMostNumbers) return;
  for (int64_t i = 0; i < count; ++i) {
    switch (RealOf(dtype)) {
      case DType::kF64:
        read->add_float_values(At<double>(bytes, i));
        break;
      case DType::kF32:
        read->add_float_values(At<float>(bytes, i));
        break;
      case DType::kS64:
      case DType::kU64:
        read->add_int_values(At<int64_t>(bytes, i));
        break;
      case DType::kS32:
        read->add_int_values(At<int32_t>(bytes, i));
        break;
      case DType::kS16:
        read->add_int_values(At<int16_t>(bytes, i));
        break;
      case DType::kS8:
        read->add_int_values(At<int8_t>(bytes, i));
        break;
      case DType::kU8:
      case DType::kBool:
        read->add_int_values(At<uint8_t>(bytes, i));
        break;
      default:
        return;
    }
  }
}

}  // namespace

google::protobuf::Duration ToDuration(absl::Duration duration) {
  google::protobuf::Duration message;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(duration);
  message.set_seconds(nanoseconds / 1000000000);
  message.set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  return message;
}

absl::Status StatusOfFault(const Fault& fault) {
  std::map<std::string, std::string> metadata;
  if (fault.item >= 0) metadata["item"] = absl::StrCat(fault.item);
  if (fault.index >= 0) metadata["index"] = absl::StrCat(fault.index);
  const Reason reason = fault.reason.value_or(Reason::kInternal);
  return Error(reason, fault.detail.empty() ? ReasonName(reason) : absl::string_view(fault.detail),
               std::move(metadata));
}

absl::Status NameOperation(const absl::Status& status, int operation, const std::string& tag,
                           absl::string_view kind) {
  ErrorDetails details = DetailsOf(status).value_or(ErrorDetails{});
  if (details.metadata.count("operation") == 0) {
    details.metadata["operation"] = absl::StrCat(operation);
    details.metadata["kind"] = Str(kind);
    if (!tag.empty()) details.metadata["tag"] = tag;
  }
  return Error(std::move(details), status.message());
}

absl::Status PoisonedStatus(uint64_t buffer, const absl::Status& cause) {
  ErrorDetails details = DetailsOf(cause).value_or(ErrorDetails{});
  details.metadata["buffer"] = absl::StrCat(buffer);
  details.metadata.emplace("cause", Str(ReasonName(details.reason)));
  details.reason = Reason::kBufferPoisoned;
  return Error(std::move(details), cause.message());
}

void FillReads(const std::vector<Step>& steps, int done, std::vector<std::string>* bytes,
               v1::SubmitResponse* response) {
  size_t next = 0;
  for (int i = 0; i < done && next < bytes->size(); ++i) {
    const OperationSpec& spec = steps[i].spec();
    if (spec.kind != OpKind::kRead) continue;
    const TensorType& type = spec.operands[0].type;
    v1::ReadResult* const read = response->add_reads();
    read->set_operation(i);
    read->set_tag(steps[i].operation->tag);
    read->set_dtype(static_cast<v1::Dtype>(type.dtype));
    for (int64_t extent : type.shape) read->add_shape(extent);
    read->set_bytes(std::move((*bytes)[next++]));
    AddNumbers(type.dtype, type.elements(), read);
  }
}

void FillFailure(const Step& step, int operation, const absl::Status& cause,
                 v1::OperationFailure* failure) {
  const ErrorDetails details = DetailsOf(cause).value_or(ErrorDetails{});
  failure->set_operation(operation);
  failure->set_tag(step.operation->tag);
  failure->set_kind(Str(KindName(step.spec().kind)));
  failure->set_reason(Str(ReasonName(details.reason)));
  failure->set_message(Str(cause.message()));
  for (const auto& [name, value] : details.metadata) (*failure->mutable_metadata())[name] = value;
}

void FillDevice(const DeviceInfo& info, uint64_t device_epoch, v1::Device* device) {
  device->set_device(info.uuid);
  device->set_name(info.name);
  device->set_isa(info.isa);
  device->set_epoch(device_epoch);
  device->set_memory_bytes(info.memory_bytes);
  device->set_threads(info.threads);
  for (const auto& [name, version] : info.libraries) (*device->mutable_libraries())[name] = version;
}

void StampProgram(const DeviceInfo& device, uint64_t device_epoch, const std::string& epoch,
                  uint64_t revision, uint64_t hash, v1::Stamp* stamp) {
  stamp->set_device(device.uuid);
  stamp->set_device_epoch(device_epoch);
  stamp->set_epoch(epoch);
  stamp->set_revision(revision);
  stamp->set_isa(device.isa);
  stamp->set_blas_core(device.blas_core);
  stamp->set_program_hash(hash);
}

void StampStep(const Step& step, int operation, const FlagSet& program_flags,
               v1::OperationStamp* stamp) {
  stamp->set_operation(operation);
  stamp->set_tag(step.operation->tag);
  stamp->set_kind(Str(KindName(step.spec().kind)));
  *stamp->mutable_device_time() = ToDuration(step.device_time);
  if (step.plan == nullptr) return;
  const Choice& choice = step.plan->choice;
  const FlagSet& flags = step.flags != nullptr ? *step.flags : program_flags;
  stamp->set_library(choice.library);
  stamp->set_library_version(choice.library_version);
  stamp->set_algorithm(choice.algorithm);
  stamp->set_threads(choice.threads);
  stamp->set_workspace_bytes(step.plan->workspace_bytes);
  stamp->set_copied_bytes(choice.copied_bytes);
  stamp->set_plan_hit(step.plan_hit);
  for (FlagId flag : choice.governing) {
    v1::StampFlag* const effective = stamp->add_flags_effective();
    effective->set_flag(Catalogue::Get().info(flag).name);
    *effective->mutable_value() = ToProto(flags.Get(flag).value);
    effective->set_layer(static_cast<v1::Layer>(flags.Get(flag).layer));
  }
  for (const Unmet& unmet : choice.unmet) {
    v1::UnmetFlag* const message = stamp->add_flags_unmet();
    message->set_flag(Catalogue::Get().info(unmet.flag).name);
    *message->mutable_requested() = ToProto(unmet.requested);
    *message->mutable_effective() = ToProto(unmet.effective);
    message->set_reason(Str(unmet.reason));
    message->set_detail(unmet.detail);
  }
  for (const std::string& candidate : choice.candidates) stamp->add_candidates(candidate);
}

void KeepAnswer(Session& session, Answer& answer, const absl::Status& status,
                const v1::SubmitResponse& response) {
  std::vector<std::function<void(const Answer&)>> waiters;
  {
    MutexLock lock(&session.mutex);
    answer.status = status;
    if (status.ok()) answer.response = response;
    answer.done = true;
    waiters.swap(answer.waiters);
  }
  for (const auto& waiter : waiters) waiter(answer);
}

}  // namespace backendd::worker
