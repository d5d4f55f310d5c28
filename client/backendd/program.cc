#include "backendd/program.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/backendd/core.h"
#include "google/protobuf/util/time_util.h"
#include "shared/convert/flag_value.h"
#include "shared/operation/operation.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd {
namespace {

constexpr uint64_t kAlignment = 256;

// The operand that a place of the decoded operation came from.
v1::Operand* OperandOf(v1::Operation* operation, const OperandSpec& spec) {
  const auto* kind = v1::Operation::descriptor()->FindFieldByNumber(operation->kind_case());
  google::protobuf::Message* message =
      v1::Operation::GetReflection()->MutableMessage(operation, kind);
  const auto* field = message->GetDescriptor()->FindFieldByName(Str(spec.name));
  if (field == nullptr) return nullptr;
  const auto* reflection = message->GetReflection();
  return static_cast<v1::Operand*>(
      field->is_repeated() ? reflection->MutableRepeatedMessage(message, field, spec.index)
                           : reflection->MutableMessage(message, field));
}

void SetOperand(const Tensor& tensor, v1::Operand* operand) { *operand = tensor.operand(); }

// "cudnn.benchmark=true (lease)" for what somebody asked for.
std::string FlagText(const v1::StampFlag& flag) {
  const std::optional<FlagValue> value = FromProto(flag.value());
  return absl::StrCat(flag.flag(), "=", value ? ToText(*value) : "?");
}

}  // namespace

v1::Operand Tensor::operand() const {
  v1::Operand operand;
  operand.set_buffer(buffer);
  operand.set_offset(offset);
  operand.set_dtype(static_cast<v1::Dtype>(type.dtype));
  operand.mutable_shape()->Assign(type.shape.begin(), type.shape.end());
  if (!type.row_major())
    operand.mutable_strides()->Assign(type.strides.begin(), type.strides.end());
  return operand;
}

Tensor Tensor::Reshape(absl::Span<const int64_t> shape) const {
  if (!valid() || !type.row_major()) return Tensor();
  Tensor reshaped{buffer, offset, RowMajor(type.dtype, shape)};
  if (!SpanBytes(reshaped.type) || reshaped.type.elements() != type.elements()) return Tensor();
  return reshaped;
}

Tensor Tensor::Transpose(int a, int b) const {
  if (!valid() || a < 0 || b < 0 || a >= type.rank() || b >= type.rank()) return Tensor();
  Tensor transposed = *this;
  std::swap(transposed.type.shape[a], transposed.type.shape[b]);
  std::swap(transposed.type.strides[a], transposed.type.strides[b]);
  return transposed;
}

Tensor Tensor::Slice(int dim, int64_t begin, int64_t end) const {
  if (!valid() || dim < 0 || dim >= type.rank() || begin < 0 || end < begin ||
      end > type.shape[dim])
    return Tensor();
  Tensor slice = *this;
  slice.offset += begin * type.strides[dim] * SizeOf(type.dtype);
  slice.type.shape[dim] = end - begin;
  return slice;
}

absl::Status Result::status() const {
  if (!response.has_failure()) return absl::OkStatus();
  const v1::OperationFailure& failure = response.failure();
  ErrorDetails details;
  details.reason = ReasonFromName(View(failure.reason())).value_or(Reason::kInternal);
  details.metadata.insert(failure.metadata().begin(), failure.metadata().end());
  details.metadata["operation"] = absl::StrCat(failure.operation());
  return Error(std::move(details), absl::StrCat("operation ", failure.operation(), " (",
                                                failure.kind(), "): ", failure.message()));
}

std::string Result::stamp() const {
  const v1::Stamp& stamp = response.stamp();
  std::string line = absl::StrCat("device=", stamp.device(), " epoch=", stamp.device_epoch(),
                                  " revision=", stamp.revision(), " isa=", stamp.isa());
  // Equal steps are counted, flags that nobody touched are left out.
  std::vector<std::pair<std::string, int>> steps;
  std::set<std::string> flags, unmet;
  int threads = 0;
  for (const v1::OperationStamp& step : stamp.operations()) {
    if (step.library().empty()) continue;
    const std::string name = absl::StrCat(step.kind(), ":", step.library(), "/", step.algorithm());
    const auto same = std::find_if(steps.begin(), steps.end(),
                                   [&](const auto& other) { return other.first == name; });
    if (same != steps.end()) {
      ++same->second;
    } else {
      steps.emplace_back(name, 1);
    }
    threads = std::max(threads, step.threads());
    for (const v1::StampFlag& flag : step.flags_effective())
      if (flag.layer() > v1::LAYER_BUILT_IN) flags.insert(FlagText(flag));
    for (const v1::UnmetFlag& flag : step.flags_unmet())
      unmet.insert(absl::StrCat(flag.flag(), " (", flag.reason(), ")"));
  }
  absl::StrAppend(&line, " threads=", threads, " flags=[", absl::StrJoin(flags, " "), "] unmet=[",
                  absl::StrJoin(unmet, " "), "] ran=[",
                  absl::StrJoin(steps, " ",
                                [](std::string* out, const auto& step) {
                                  absl::StrAppend(out, step.first);
                                  if (step.second > 1) absl::StrAppend(out, "*", step.second);
                                }),
                  "]");
  return line;
}

Program::Program(std::shared_ptr<SessionCore> core, std::string device)
    : core_(std::move(core)), device_(std::move(device)) {}

Program::~Program() {
  if (core_ == nullptr) return;  // moved from
  if (keeper_ != nullptr) core_->ReleaseProgram(*keeper_, id_);
  for (uint64_t buffer : own_) (void)core_->Free(buffer);
}

Tensor Program::Allocate(DType dtype, absl::Span<const int64_t> shape) {
  Tensor tensor{0, 0, RowMajor(dtype, shape)};
  const std::optional<int64_t> bytes = SpanBytes(tensor.type);
  if (!tensor.valid() || !bytes) return Tensor();
  if (layout_ == 0) layout_ = core_->NewId();
  tensor.buffer = layout_;
  tensor.offset = layout_bytes_;
  layout_bytes_ += (std::max<uint64_t>(*bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  return tensor;
}

std::vector<Tensor> Program::Add(v1::Operation operation) {
  const std::string path = absl::StrCat("operations[", operations_.size(), "]");
  const size_t before = violations_.size();
  DecodedOperation decoded = Decode(operation, path, &violations_);
  if (violations_.size() == before) Infer(decoded.spec, path, &violations_);
  if (id_ != 0)
    violations_.push_back({path, Reason::kArgumentInvalid, "the program is prepared already"});
  if (violations_.size() != before) return {};
  std::vector<Tensor> outputs;
  for (const OperandSpec& spec : decoded.spec.operands) {
    if (!spec.present || spec.use != Use::kOut) continue;
    v1::Operand* operand = OperandOf(&operation, spec);
    if (operand == nullptr || operand->dtype() != v1::DTYPE_UNSPECIFIED) continue;
    outputs.push_back(Allocate(spec.type.dtype, spec.type.shape));
    SetOperand(outputs.back(), operand);
  }
  *operations_.Add() = std::move(operation);
  return outputs;
}

// The output, where the message named none.
Tensor Program::One(v1::Operation operation) {
  std::vector<Tensor> outputs = Add(std::move(operation));
  return outputs.empty() ? Tensor() : outputs[0];
}

absl::Status Program::AllocateOwn() {
  if (layout_ == 0) return absl::OkStatus();
  RETURN_IF_ERROR(core_->Allocate(device_, layout_bytes_, false, layout_).status());
  own_.push_back(layout_);
  layout_ = layout_bytes_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<WorkerLink>> Program::Worker() {
  RETURN_IF_ERROR(status());
  RETURN_IF_ERROR(core_->Check());
  RETURN_IF_ERROR(AllocateOwn());
  ASSIGN_OR_RETURN(std::shared_ptr<WorkerLink> link, core_->Worker(device_));
  if (id_ == 0 || keeper_ == link) return link;
  v1::PrepareProgramRequest request;
  request.set_session_id(link->session);
  request.set_program_id(id_);
  request.mutable_parameters()->Assign(parameters_.begin(), parameters_.end());
  *request.mutable_operations() = operations_;
  v1::PrepareProgramResponse response;
  RETURN_IF_ERROR(
      core_->Compute(*link, &v1::ComputeService::Stub::PrepareProgram, request, &response));
  keeper_ = link;
  return link;
}

absl::Status Program::Prepare(const std::vector<Tensor>& parameters) {
  if (id_ != 0) return Error(Reason::kArgumentInvalid, "the program is prepared already");
  for (const Tensor& parameter : parameters) parameters_.push_back(parameter.buffer);
  id_ = core_->NewId();
  const absl::Status prepared = Worker().status();
  if (!prepared.ok()) id_ = 0;
  if (id_ == 0) parameters_.clear();
  return prepared;
}

absl::StatusOr<Result> Program::Submit(const SubmitOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<WorkerLink> link, Worker());
  v1::SubmitRequest request;
  request.set_session_id(link->session);
  request.set_device_epoch(link->epoch);
  request.set_mode(options.mode);
  request.set_stamp_detail(options.stamp_detail);
  request.set_strict_flags(options.strict_flags);
  request.set_min_revision(core_->revision());
  const absl::Duration deadline =
      options.deadline == absl::ZeroDuration() ? core_->deadline() : options.deadline;
  *request.mutable_deadline() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(deadline));
  if (options.lease != nullptr) {
    ASSIGN_OR_RETURN(const uint64_t token, options.lease->token());
    request.set_lease_id(options.lease->id());
    request.set_token(token);
  }
  for (const auto& [parameter, tensor] : options.bindings) {
    if (!parameter.valid() || parameter.type != tensor.type || tensor.offset < parameter.offset)
      return Error(Reason::kArgumentInvalid,
                   "a binding's tensor has its parameter's type and lies no nearer to its buffer's "
                   "begin");
    v1::Binding* binding = request.add_bindings();
    binding->set_parameter(parameter.buffer);
    binding->set_buffer(tensor.buffer);
    binding->set_offset(tensor.offset - parameter.offset);
  }
  Result result;
  request.set_program_id(id_);
  // Lent, not copied: a step that is not prepared may be sent thousands of times.
  if (id_ == 0) request.mutable_operations()->Swap(&operations_);
  const absl::Status status = core_->Compute(*link, &v1::ComputeService::Stub::Submit, request,
                                             &result.response, deadline + absl::Seconds(1));
  if (id_ == 0) request.mutable_operations()->Swap(&operations_);
  RETURN_IF_ERROR(status);
  return result;
}

// The named operations: inputs set, the output asked for where the message does not say where it
// goes.
Tensor Program::Gemm(const Tensor& a, const Tensor& b, v1::Gemm op) {
  SetOperand(a, op.mutable_a());
  SetOperand(b, op.mutable_b());
  op.mutable_y();
  v1::Operation operation;
  *operation.mutable_gemm() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::ConvolutionForward(const Tensor& x, const Tensor& w, v1::ConvolutionForward op) {
  SetOperand(x, op.mutable_x());
  SetOperand(w, op.mutable_w());
  op.mutable_y();
  v1::Operation operation;
  *operation.mutable_convolution_forward() = std::move(op);
  return One(std::move(operation));
}

void Program::ConvolutionInputGradient(const Tensor& dy, const Tensor& w, const Tensor& dx,
                                       v1::ConvolutionInputGradient op) {
  SetOperand(dy, op.mutable_dy());
  SetOperand(w, op.mutable_w());
  SetOperand(dx, op.mutable_dx());
  v1::Operation operation;
  *operation.mutable_convolution_input_gradient() = std::move(op);
  Add(std::move(operation));
}

void Program::ConvolutionWeightGradient(const Tensor& x, const Tensor& dy, const Tensor& dw,
                                        v1::ConvolutionWeightGradient op) {
  SetOperand(x, op.mutable_x());
  SetOperand(dy, op.mutable_dy());
  SetOperand(dw, op.mutable_dw());
  v1::Operation operation;
  *operation.mutable_convolution_weight_gradient() = std::move(op);
  Add(std::move(operation));
}

Tensor Program::Fft(const Tensor& x, v1::FftKind kind, v1::Fft op) {
  SetOperand(x, op.mutable_x());
  op.mutable_y();
  op.set_kind(kind);
  if (op.dims().empty()) op.add_dims(x.type.rank() - 1);
  v1::Operation operation;
  *operation.mutable_fft() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::Softmax(const Tensor& x, int64_t dim, v1::Softmax op) {
  SetOperand(x, op.mutable_x());
  op.mutable_y();
  op.set_dim(dim);
  v1::Operation operation;
  *operation.mutable_softmax() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::Activation(const Tensor& x, v1::ActivationFunction function, v1::Activation op) {
  SetOperand(x, op.mutable_x());
  op.mutable_y();
  op.set_function(function);
  v1::Operation operation;
  *operation.mutable_activation() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::ActivationGradient(const Tensor& x, const Tensor& dy,
                                   v1::ActivationFunction function, v1::ActivationGradient op) {
  SetOperand(x, op.mutable_x());
  SetOperand(dy, op.mutable_dy());
  op.mutable_dx();
  op.set_function(function);
  v1::Operation operation;
  *operation.mutable_activation_gradient() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::Reduction(const Tensor& x, v1::ReductionKind kind, v1::Reduction op) {
  SetOperand(x, op.mutable_x());
  op.mutable_y();
  op.set_kind(kind);
  v1::Operation operation;
  *operation.mutable_reduction() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::CrossEntropy(const Tensor& x, const Tensor& target, v1::CrossEntropy op) {
  SetOperand(x, op.mutable_x());
  SetOperand(target, op.mutable_target());
  op.mutable_y();
  v1::Operation operation;
  *operation.mutable_cross_entropy() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::CrossEntropyGradient(const Tensor& x, const Tensor& target, const Tensor& dy,
                                     v1::CrossEntropyGradient op) {
  SetOperand(x, op.mutable_x());
  SetOperand(target, op.mutable_target());
  SetOperand(dy, op.mutable_dy());
  op.mutable_dx();
  v1::Operation operation;
  *operation.mutable_cross_entropy_gradient() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::Unary(const Tensor& x, v1::UnaryFunction function, v1::Unary op) {
  SetOperand(x, op.mutable_x());
  op.mutable_y();
  op.set_function(function);
  v1::Operation operation;
  *operation.mutable_unary() = std::move(op);
  return One(std::move(operation));
}

Tensor Program::Binary(const Tensor& a, const Tensor& b, v1::BinaryFunction function,
                       v1::Binary op) {
  SetOperand(a, op.mutable_a());
  SetOperand(b, op.mutable_b());
  op.mutable_y();
  op.set_function(function);
  v1::Operation operation;
  *operation.mutable_binary() = std::move(op);
  return One(std::move(operation));
}

void Program::Copy(const Tensor& x, const Tensor& y) {
  v1::Operation operation;
  SetOperand(x, operation.mutable_copy()->mutable_x());
  SetOperand(y, operation.mutable_copy()->mutable_y());
  Add(std::move(operation));
}

void Program::Fill(const Tensor& y, double value) {
  v1::Operation operation;
  SetOperand(y, operation.mutable_fill()->mutable_y());
  operation.mutable_fill()->mutable_value()->set_real(value);
  operation.mutable_fill()->mutable_value()->set_integer(static_cast<int64_t>(value));
  Add(std::move(operation));
}

void Program::Read(const Tensor& x) {
  v1::Operation operation;
  SetOperand(x, operation.mutable_read()->mutable_x());
  Add(std::move(operation));
}

void Program::Sgd(const Tensor& param, const Tensor& grad, const Tensor& lr, v1::Sgd op) {
  SetOperand(param, op.mutable_param());
  SetOperand(grad, op.mutable_grad());
  SetOperand(lr, op.mutable_lr());
  v1::Operation operation;
  *operation.mutable_sgd() = std::move(op);
  Add(std::move(operation));
}

}  // namespace backendd
