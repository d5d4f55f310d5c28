#include "tests/contract/harness.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/worker/device/cpu/cpu_device.h"
#include "server/worker/device/cpu/narrow.h"
#include "shared/status/macros.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr unsigned char kCanary = 0xA5;
constexpr int64_t kMargin = 256;

void Encode(DType dtype, std::complex<double> value, std::byte* to) {
  auto put = [to](auto number) { std::memcpy(to, &number, sizeof(number)); };
  const double real = value.real();
  switch (dtype) {
    case DType::kF64:
      return put(real);
    case DType::kF32:
      return put(static_cast<float>(real));
    case DType::kF16:
      return put(Half::FromDouble(real));
    case DType::kBf16:
      return put(Bfloat16::FromDouble(real));
    case DType::kF8E4M3:
      return put(F8E4M3::FromDouble(real));
    case DType::kF8E5M2:
      return put(F8E5M2::FromDouble(real));
    case DType::kC128:
      return put(value);
    case DType::kC64:
      return put(std::complex<float>(value));
    case DType::kS64:
      return put(real >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(real));
    case DType::kS32:
      return put(static_cast<int32_t>(real));
    case DType::kS16:
      return put(static_cast<int16_t>(real));
    case DType::kS8:
      return put(static_cast<int8_t>(real));
    case DType::kU8:
      return put(static_cast<uint8_t>(real));
    case DType::kBool:
      return put(static_cast<uint8_t>(real != 0));
    case DType::kU64:
      return put(static_cast<uint64_t>(real));
    case DType::kUnspecified:
      break;
  }
  ADD_FAILURE() << "no dtype";
}

template <class T>
T Get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::complex<double> DecodeNumber(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kF64:
      return Get<double>(from);
    case DType::kF32:
      return Get<float>(from);
    case DType::kF16:
      return Get<Half>(from).ToFloat();
    case DType::kBf16:
      return Get<Bfloat16>(from).ToFloat();
    case DType::kF8E4M3:
      return Get<F8E4M3>(from).ToFloat();
    case DType::kF8E5M2:
      return Get<F8E5M2>(from).ToFloat();
    case DType::kC128:
      return Get<std::complex<double>>(from);
    case DType::kC64:
      return std::complex<double>(Get<std::complex<float>>(from));
    case DType::kS64:
      return static_cast<double>(Get<int64_t>(from));
    case DType::kS32:
      return Get<int32_t>(from);
    case DType::kS16:
      return Get<int16_t>(from);
    case DType::kS8:
      return Get<int8_t>(from);
    case DType::kU8:
      return Get<uint8_t>(from);
    case DType::kBool:
      return Get<uint8_t>(from);
    case DType::kU64:
      return static_cast<double>(Get<uint64_t>(from));
    case DType::kUnspecified:
      break;
  }
  return 0;
}

// The element offset of every index, in the order of the indices.
std::vector<int64_t> Offsets(const TensorType& type) {
  std::vector<int64_t> offsets = {0};
  for (int dim = 0; dim < type.rank(); ++dim) {
    std::vector<int64_t> next;
    for (int64_t base : offsets) {
      for (int64_t i = 0; i < type.shape[dim]; ++i) next.push_back(base + i * type.strides[dim]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

// An operand's bytes between two margins.
struct Memory {
  std::unique_ptr<std::byte[]> all;
  std::byte* data = nullptr;
  int64_t bytes = 0;

  explicit Memory(int64_t size) : bytes(size) {
    const size_t whole = size + 2 * kMargin + 64;
    all = std::make_unique<std::byte[]>(whole);
    std::memset(all.get(), kCanary, whole);
    const auto at = reinterpret_cast<uintptr_t>(all.get()) + kMargin;
    data = all.get() + kMargin + (64 - at % 64) % 64;
  }
  bool MarginsIntact() const {
    for (int64_t i = 1; i <= kMargin / 2; ++i) {
      if (data[-i] != std::byte{kCanary} || data[bytes + i - 1] != std::byte{kCanary}) return false;
    }
    return true;
  }
};

void SetOperand(google::protobuf::Message* message, const std::string& name, const Value* value,
                uint64_t buffer) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const auto* field = message->GetDescriptor()->FindFieldByName(parts[0]);
  ASSERT_NE(field, nullptr) << "no operand " << name;
  auto* reflection = message->GetReflection();
  google::protobuf::Message* slot = nullptr;
  if (!field->is_repeated()) {
    slot = reflection->MutableMessage(message, field);
  } else if (parts.size() == 3) {  // a list of groups of operands: "weights.0.weight_ih"
    int index = 0;
    ASSERT_TRUE(absl::SimpleAtoi(parts[1], &index));
    while (reflection->FieldSize(*message, field) <= index) reflection->AddMessage(message, field);
    SetOperand(reflection->MutableRepeatedMessage(message, field, index), parts[2], value, buffer);
    return;
  } else {
    slot = reflection->AddMessage(message, field);
  }
  auto* operand = dynamic_cast<v1::Operand*>(slot);
  ASSERT_NE(operand, nullptr) << name;
  operand->set_buffer(buffer);
  if (value->dtype == DType::kUnspecified) return;
  operand->set_dtype(static_cast<v1::Dtype>(value->dtype));
  for (int64_t extent : value->shape) operand->add_shape(extent);
  for (int64_t stride : value->strides) operand->add_strides(stride);
}

}  // namespace

Value MakeValue(DType dtype, Extents shape, std::vector<double> numbers) {
  Value value{dtype, std::move(shape), {}, {}};
  size_t count = 1;
  for (int64_t extent : value.shape) count *= extent;
  value.data.assign(count, 0.0);
  for (size_t i = 0; i < std::min(count, numbers.size()); ++i) value.data[i] = numbers[i];
  return value;
}

Value RandomValue(DType dtype, Extents shape, int seed) {
  Value value = MakeValue(dtype, std::move(shape));
  std::mt19937 random(seed);
  auto next = [&] { return (static_cast<int>(random() % 129) - 64) / 32.0; };
  for (auto& number : value.data) {
    const double real = next();
    number = IsComplex(dtype) ? std::complex<double>(real, next()) : real;
  }
  return value;
}

Value WithStrides(Value value, Extents strides) {
  value.strides = std::move(strides);
  return value;
}

Value As(Value value, DType dtype) {
  value.dtype = dtype;
  return value;
}

TestFlags::TestFlags() {
  for (const FlagInfo& flag : Catalogue::Get().flags()) {
    states_.push_back({flag.default_value.value_or(None{}), 1});
  }
}

TestFlags& TestFlags::Set(absl::string_view name, FlagValue value) {
  states_[FlagIdOf(name)] = {std::move(value), 6};
  return *this;
}

absl::StatusOr<Result> RunOperation(Device& device, v1::Operation operation, const Operands& inputs,
                                    const Operands& outputs, const FlagValues& flags) {
  const auto* kind = operation.GetDescriptor()->FindFieldByNumber(operation.kind_case());
  auto* message = operation.GetReflection()->MutableMessage(&operation, kind);
  // Buffer i + 1 is operand i of this list.
  std::vector<std::pair<std::string, const Value*>> given;
  for (const auto* list : {&inputs, &outputs}) {
    for (const auto& [name, value] : *list) given.emplace_back(name, &value);
  }
  for (size_t i = 0; i < given.size(); ++i) {
    SetOperand(message, given[i].first, given[i].second, i + 1);
  }
  std::vector<Violation> violations;
  DecodedOperation decoded = Decode(operation, "operations[0]", &violations);
  RETURN_IF_ERROR(ErrorFrom(violations));
  Infer(decoded.spec, "operations[0]", &violations);
  RETURN_IF_ERROR(ErrorFrom(violations));

  std::vector<Memory> memory;
  std::vector<Address> addresses;
  std::vector<uint8_t> alignment;
  for (size_t i = 0; i < decoded.spec.operands.size(); ++i) {
    const OperandSpec& operand = decoded.spec.operands[i];
    const TensorType& type = operand.type;
    memory.emplace_back(operand.present ? SpanBytes(type).value() : 0);
    addresses.push_back(memory.back().bytes > 0 ? memory.back().data : nullptr);
    alignment.push_back(6);
    if (!operand.present || operand.use == Use::kOut) continue;
    const Value& value = *given[decoded.places[i].buffer - 1].second;
    const std::vector<int64_t> offsets = Offsets(type);
    for (size_t k = 0; k < offsets.size(); ++k) {
      Encode(type.dtype, value.data[k], memory[i].data + offsets[k] * SizeOf(type.dtype));
    }
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, device.BuildPlan(decoded.spec, flags, alignment));
  Memory workspace(static_cast<int64_t>(plan->workspace_bytes));
  ASSIGN_OR_RETURN(Slot * slot, device.OpenSlot());
  Result result;
  RETURN_IF_ERROR(device.Run(*slot, *plan, addresses, workspace.data, &result.fault));
  result.choice = plan->choice;
  EXPECT_TRUE(workspace.MarginsIntact()) << "written outside the workspace";
  for (size_t i = 0; i < decoded.spec.operands.size(); ++i) {
    const OperandSpec& operand = decoded.spec.operands[i];
    if (!operand.present) continue;
    EXPECT_TRUE(memory[i].MarginsIntact()) << "written outside " << Str(operand.name);
    if (operand.use == Use::kIn) continue;
    Value value{operand.type.dtype, operand.type.shape, {}, {}};
    for (int64_t offset : Offsets(operand.type)) {
      value.data.push_back(
          DecodeNumber(value.dtype, memory[i].data + offset * SizeOf(value.dtype)));
    }
    result.outputs[given[decoded.places[i].buffer - 1].first] = std::move(value);
  }
  if (result.fault.reason) return Error(*result.fault.reason, "the run found it");
  return result;
}

std::vector<DeviceFactory> DeviceFactories() {
  return {{"cpu", [] {
             auto device = CreateCpuDevice({});
             EXPECT_TRUE(device.ok()) << device.status();
             return *std::move(device);
           }}};
}

Device& DeviceContract::device() {
  static auto* const devices = new std::map<int, std::unique_ptr<Device>>;
  auto& device = (*devices)[GetParam()];
  if (device == nullptr) device = DeviceFactories()[GetParam()].create();
  return *device;
}

Result DeviceContract::Run(const v1::Operation& operation, const Operands& inputs,
                           const Operands& outputs, const FlagValues& flags) {
  absl::StatusOr<Result> result = RunOperation(device(), operation, inputs, outputs, flags);
  EXPECT_TRUE(result.ok()) << result.status();
  if (result.ok()) return *std::move(result);
  Result nothing;
  for (const auto* list : {&inputs, &outputs}) {
    for (const auto& [name, value] : *list) nothing.outputs[name] = Value();
  }
  return nothing;
}

std::vector<Reason> DeviceContract::Refused(const v1::Operation& operation, const Operands& inputs,
                                            const Operands& outputs, const FlagValues& flags) {
  const absl::StatusOr<Result> result = RunOperation(device(), operation, inputs, outputs, flags);
  std::vector<Reason> reasons;
  if (result.ok()) return reasons;
  const auto details = DetailsOf(result.status());
  if (!details) return {Reason::kInternal};
  reasons.push_back(details->reason);
  for (const Violation& violation : details->violations) reasons.push_back(violation.reason);
  return reasons;
}

double Epsilon(DType dtype) {
  switch (RealOf(dtype)) {
    case DType::kF32:
      return std::numeric_limits<float>::epsilon();
    case DType::kF16:
      return 0x1p-10;
    case DType::kBf16:
      return 0x1p-7;
    default:
      return std::numeric_limits<double>::epsilon();
  }
}

::testing::AssertionResult Near(const Value& got, const Value& expected, double scale,
                                double factor) {
  if (got.shape != expected.shape || got.data.size() != expected.data.size()) {
    return ::testing::AssertionFailure()
           << "shape " << ToText(RowMajor(got.dtype, got.shape)) << " for "
           << ToText(RowMajor(expected.dtype, expected.shape));
  }
  const double allowed = factor * Epsilon(got.dtype) * scale;
  auto same = [&](double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b || std::fabs(a - b) <= allowed;
  };
  for (size_t i = 0; i < got.data.size(); ++i) {
    if (!same(got.data[i].real(), expected.data[i].real()) ||
        !same(got.data[i].imag(), expected.data[i].imag())) {
      return ::testing::AssertionFailure() << "element " << i << " is " << got.data[i] << " for "
                                           << expected.data[i] << ", allowed " << allowed;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace backendd::worker
