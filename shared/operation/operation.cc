#include "shared/operation/operation.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "shared/operation/family.h"
#include "shared/text.h"

namespace backendd {
namespace {

constexpr int kLastKind = 65;

const Family* FamilyOf(OpKind kind) {
  static const auto* const table = [] {
    auto* rows = new std::array<const Family*, kLastKind + 1>{};
    for (auto families : {BytesFamilies(), MultiplyFamilies(), ConvolutionFamilies(),
                          ElementFamilies(), NormFamilies(), TransformFamilies(), LinalgFamilies(),
                          EinsumFamilies(), RecurrentFamilies(), QuantizedFamilies(),
                          SparseFamilies(), GroupedFamilies(), AttentionFamilies()}) {
      for (const Family& family : families) (*rows)[family.kind] = &family;
    }
    return rows;
  }();
  const int number = static_cast<int>(kind);
  return number >= 0 && number <= kLastKind ? (*table)[number] : nullptr;
}

// What the shapes alone say of an operand, without another one.
std::string CheckType(const v1::Operand& operand, Use use, TensorType* type, Reason* reason) {
  *reason = Reason::kShapeInvalid;
  if (operand.shape_size() > kMaxRank) {
    return absl::StrCat("has rank ", operand.shape_size(), "; at most ", kMaxRank);
  }
  type->shape.assign(operand.shape().begin(), operand.shape().end());
  std::optional<int64_t> count = 1;
  for (int64_t extent : type->shape) {
    if (extent < 0 || extent > kMaxExtent) {
      return absl::StrCat("has an extent of ", extent, "; allowed: 0 to 2^48 - 1");
    }
    if (count) count = CheckedMul(*count, extent == 0 ? 1 : extent);
  }
  if (!count || !CheckedMul(*count, 16)) return "has more elements than 64 bits can address";
  if (operand.strides_size() == 0) {
    type->strides = RowMajorStrides(type->shape);
  } else if (operand.strides_size() != operand.shape_size()) {
    return absl::StrCat("has ", operand.strides_size(), " strides for rank ", operand.shape_size());
  } else {
    type->strides.assign(operand.strides().begin(), operand.strides().end());
  }
  for (int64_t stride : type->strides) {
    if (stride < 0) return absl::StrCat("has a stride of ", stride, "; allowed: 0 or more");
  }
  if (!SpanBytes(*type)) return "spans more bytes than 64 bits can address";
  if (use != Use::kIn && type->overlaps_itself()) {
    *reason = Reason::kOverlap;
    return "is written and overlaps itself";
  }
  return "";
}

void Append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}
template <class T>
void AppendValue(std::string* key, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  Append(key, &value, sizeof(value));
}
void AppendValue(std::string* key, const Extents& values) {
  AppendValue(key, static_cast<int32_t>(values.size()));
  Append(key, values.data(), values.size() * sizeof(int64_t));
}
void AppendValue(std::string* key, const std::string& value) {
  AppendValue(key, static_cast<int32_t>(value.size()));
  key->append(value);
}
void AppendValue(std::string* key, const std::vector<double>& values) {
  AppendValue(key, static_cast<int32_t>(values.size()));
  Append(key, values.data(), values.size() * sizeof(double));
}
void AppendValue(std::string* key, const std::optional<int64_t>& value) {
  AppendValue(key, static_cast<char>(value.has_value()));
  AppendValue(key, value.value_or(0));
}

}  // namespace

absl::string_view KindName(OpKind kind) {
  if (const Family* family = FamilyOf(kind)) return family->name;
  const auto* field = v1::Operation::descriptor()->FindFieldByNumber(kind);
  return field == nullptr ? "" : absl::string_view(field->name());
}

DecodedOperation Decode(const v1::Operation& operation, absl::string_view path,
                        std::vector<Violation>* violations) {
  DecodedOperation decoded;
  decoded.spec.kind = operation.kind_case();
  if (operation.kind_case() == v1::Operation::KIND_NOT_SET) {
    violations->push_back({Str(path), Reason::kArgumentInvalid, "the operation has no kind"});
    return decoded;
  }
  const Family* family = FamilyOf(operation.kind_case());
  if (family == nullptr) {
    const absl::string_view name = KindName(operation.kind_case());
    violations->push_back({absl::StrCat(path, ".", name), Reason::kOpUnsupported,
                           absl::StrCat("operation '", name, "' is not offered")});
    return decoded;
  }
  Reader reader(&decoded, absl::StrCat(path, ".", family->name), violations);
  family->decode(operation, reader);
  return decoded;
}

void Infer(OperationSpec& spec, absl::string_view path, std::vector<Violation>* violations) {
  const Family* family = FamilyOf(spec.kind);
  if (family == nullptr || spec.attributes.index() == 0) return;  // Decode has said so
  for (const OperandSpec& operand : spec.operands) {
    const bool unknown = operand.type.dtype == DType::kUnspecified;
    if (operand.required && !operand.present) return;  // Decode has said so
    if (operand.present && operand.use != Use::kOut && unknown) return;
  }
  Check check(&spec, absl::StrCat(path, ".", family->name), violations);
  family->infer(check);
}

void AppendKey(const OperationSpec& spec, std::string* key) {
  AppendValue(key, static_cast<int16_t>(spec.kind));
  std::visit(
      [key](const auto& attributes) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(attributes)>, std::monostate>) {
          std::apply([key](const auto&... members) { (AppendValue(key, members), ...); },
                     attributes.Tie());
        }
      },
      spec.attributes);
  for (const OperandSpec& operand : spec.operands) {
    if (!operand.present) {
      AppendValue(key, static_cast<char>(0));
      continue;
    }
    AppendValue(key, static_cast<char>(operand.type.dtype));
    AppendValue(key, operand.type.shape);
    AppendValue(key, operand.type.strides);
  }
}

void Reader::Add(absl::string_view name, bool has, const v1::Operand& operand, Use use,
                 bool required, int index, bool repeated) {
  OperandSpec spec;
  spec.name = name;
  spec.index = index;
  spec.use = use;
  spec.present = has;
  spec.required = required;
  OperandPlace place;
  const std::string field = repeated ? absl::StrCat(name, "[", index, "]") : Str(name);
  if (!has) {
    if (required) Bad(field, "is missing");
  } else {
    place = {operand.buffer(), operand.offset()};
    // An output may leave its type to Infer.
    const bool open = use == Use::kOut && operand.dtype() == v1::DTYPE_UNSPECIFIED &&
                      operand.shape_size() == 0 && operand.strides_size() == 0;
    if (!open && (!v1::Dtype_IsValid(operand.dtype()) || operand.dtype() == 0)) {
      Bad(absl::StrCat(field, ".dtype"),
          absl::StrCat("no dtype has number ", static_cast<int>(operand.dtype())),
          Reason::kDtypeInvalid);
    } else if (!open) {
      spec.type.dtype = static_cast<DType>(operand.dtype());
      Reason reason;
      const std::string fault = CheckType(operand, use, &spec.type, &reason);
      if (!fault.empty()) {
        Bad(absl::StrCat(field, ".shape"), fault, reason);
        spec.type.dtype = DType::kUnspecified;
        spec.type.shape.clear();
        spec.type.strides.clear();
      }
    }
  }
  out_.spec.operands.push_back(std::move(spec));
  out_.places.push_back(place);
}

Extents Reader::List(absl::string_view name, const google::protobuf::RepeatedField<int64_t>& values,
                     int count, int64_t fallback) {
  if (values.empty()) return Extents(count, fallback);
  if (values.size() != count) {
    Bad(name, absl::StrCat("has ", values.size(), " numbers for ", count, " spatial dimensions"));
    return Extents(count, fallback);
  }
  return Extents(values.begin(), values.end());
}

std::complex<double> Reader::Complex(absl::string_view name,
                                     const google::protobuf::RepeatedField<double>& values,
                                     double fallback) {
  if (values.size() > 2) Bad(name, "has more than a real and an imaginary part");
  if (values.empty()) return fallback;
  return {values[0], values.size() > 1 ? values[1] : 0.0};
}

int64_t Reader::Dim(absl::string_view name, int64_t dim, int rank) {
  if (rank == 0) rank = 1;
  if (dim < -rank || dim >= rank) {
    Bad(name, absl::StrCat("is ", dim, "; allowed: ", -rank, " to ", rank - 1));
    return 0;
  }
  return dim < 0 ? dim + rank : dim;
}

void Reader::Bad(absl::string_view field, absl::string_view sentence, Reason reason) {
  violations_.push_back(
      {absl::StrCat(path_, ".", field), reason, absl::StrCat("'", field, "' ", sentence)});
}

void Check::Output(int place, DType dtype, absl::Span<const int64_t> shape) {
  if (!has(place)) return;
  TensorType& type = spec_.operands[place].type;
  if (type.dtype == DType::kUnspecified) {
    type = RowMajor(dtype, shape);
    return;
  }
  Dtype(place, dtype);
  Shape(place, shape);
}

void Check::Dtype(int place, DType dtype) {
  if (!has(place) || type(place).dtype == dtype) return;
  Bad(place, Reason::kDtypeInvalid,
      absl::StrCat("is ", Name(type(place).dtype), "; it must be ", Name(dtype)));
}

void Check::Shape(int place, absl::Span<const int64_t> shape) {
  if (!has(place) || absl::MakeConstSpan(type(place).shape) == shape) return;
  Bad(place, Reason::kShapeInvalid,
      absl::StrCat("has shape [", absl::StrJoin(type(place).shape, ", "), "]; it must be [",
                   absl::StrJoin(shape, ", "), "]"));
}

void Check::Rank(int place, int least, int most) {
  const int rank = type(place).rank();
  if (!has(place) || (rank >= least && rank <= most)) return;
  Bad(place, Reason::kShapeInvalid,
      absl::StrCat("has rank ", rank, "; allowed: ", least, " to ", most));
}

void Check::Floating(int place) {
  const DType dtype = type(place).dtype;
  if (!has(place) || (dtype >= DType::kF64 && dtype <= DType::kBf16)) return;
  Bad(place, Reason::kDtypeInvalid,
      absl::StrCat("is ", Name(dtype), "; allowed: f64, f32, f16, bf16"));
}

void Check::Bad(int place, Reason reason, absl::string_view sentence) {
  const OperandSpec& operand = spec_.operands[place];
  int of_name = 0;
  for (const OperandSpec& other : spec_.operands) of_name += other.name == operand.name;
  const std::string field =
      of_name > 1 ? absl::StrCat(operand.name, "[", operand.index, "]") : Str(operand.name);
  violations_.push_back(
      {absl::StrCat(path_, ".", field, reason == Reason::kDtypeInvalid ? ".dtype" : ".shape"),
       reason, absl::StrCat("'", field, "' ", sentence)});
}

void Check::BadAttribute(absl::string_view name, absl::string_view sentence, Reason reason) {
  violations_.push_back(
      {absl::StrCat(path_, ".", name), reason, absl::StrCat("'", name, "' ", sentence)});
}

}  // namespace backendd
