#include "tests/contract/recorded.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/worker/device/cpu/narrow.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

using Json = nlohmann::json;

double Number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  const std::string text = json.get<std::string>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  return text == "-Inf" ? -infinity : infinity;
}

std::complex<double> Complex(const Json& json) {
  if (json.is_array()) return {Number(json[0]), Number(json[1])};
  return Number(json);
}

// `data` lies in memory order where there are strides.
Value Tensor(const Json& json) {
  Value value;
  value.dtype = DTypeFromName(View(json["dtype"].get<std::string>())).value();
  for (const Json& extent : json["shape"]) value.shape.push_back(extent.get<int64_t>());
  if (json.contains("strides")) {
    for (const Json& stride : json["strides"]) value.strides.push_back(stride.get<int64_t>());
  }
  const Extents steps = json.contains("strides") ? value.strides : RowMajorStrides(value.shape);
  int64_t count = 1;
  for (int64_t extent : value.shape) count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, offset = 0;
    for (int dim = static_cast<int>(value.shape.size()) - 1; dim >= 0; --dim) {
      offset += rest % value.shape[dim] * steps[dim];
      rest /= value.shape[dim];
    }
    std::complex<double> number = Complex(json["data"][offset]);
    // Narrow floats are written as the shortest text that reads back.
    switch (RealOf(value.dtype)) {
      case DType::kF32:
        number = std::complex<float>(number);
        break;
      case DType::kF16:
        number = Half::FromDouble(number.real()).ToFloat();
        break;
      case DType::kBf16:
        number = Bfloat16::FromDouble(number.real()).ToFloat();
        break;
      case DType::kF8E4M3:
        number = F8E4M3::FromDouble(number.real()).ToFloat();
        break;
      case DType::kF8E5M2:
        number = F8E5M2::FromDouble(number.real()).ToFloat();
        break;
      default:
        break;
    }
    value.data.push_back(number);
  }
  return value;
}

// Attributes that shapes tell, or that only choose the operation.
const std::set<std::string>& NotAttributes() {
  static const auto* const names = new std::set<std::string>{
      "spatial",  "x_shape",    "w_shape", "from", "to",          "pair_sums_fit_16_bits",
      "gradient", "rows",       "scheme",  "step", "hidden_size", "call",
      "bias",     "input_size", "groups",  "form"};
  return *names;
}

void Set(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
         const Json& json) {
  using Field = google::protobuf::FieldDescriptor;
  auto* reflection = message->GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case Field::CPPTYPE_ENUM: {
      // POOLING_KIND_MAX from "max": the prefix of the enumerators is that of the first one.
      std::string prefix = field->enum_type()->value(0)->name();
      prefix.resize(prefix.size() - std::string("UNSPECIFIED").size());
      const auto* value = field->enum_type()->FindValueByName(
          prefix + absl::AsciiStrToUpper(json.get<std::string>()));
      reflection->SetEnumValue(message, field, value == nullptr ? 99 : value->number());
      return;
    }
    case Field::CPPTYPE_INT64:
      if (many) return reflection->AddInt64(message, field, json.get<int64_t>());
      return reflection->SetInt64(message, field, json.get<int64_t>());
    case Field::CPPTYPE_DOUBLE:
      if (many) return reflection->AddDouble(message, field, Number(json));
      return reflection->SetDouble(message, field, Number(json));
    case Field::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, json.get<bool>());
    case Field::CPPTYPE_STRING:
      return reflection->SetString(message, field, json.get<std::string>());
    default:
      ADD_FAILURE() << "attribute " << field->name();
  }
}

bool OnePerSpatialDimension(const std::string& name) {
  return name == "kernel" || name == "stride" || name == "padding" || name == "dilation" ||
         name == "output_padding";
}

// "weight_ih_l1_reverse" is "weights.3.weight_ih".
std::string OperandName(const std::string& name, const Json& attributes) {
  for (const char* weight : {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"}) {
    const std::string prefix = absl::StrCat(weight, "_l");
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const int layer = std::stoi(name.substr(prefix.size()));
    const bool reverse = name.find("_reverse") != std::string::npos;
    const int directions = attributes.value("bidirectional", false) ? 2 : 1;
    return absl::StrCat("weights.", layer * directions + reverse, ".", weight);
  }
  return name;
}

std::string KindOf(const std::string& file, const Json& attributes) {
  if (file == "batched_gemm" || file == "gemm_narrow") return "gemm";
  if (file == "embedding" && attributes.value("gradient", false)) return "embedding_gradient";
  if (file == "cast") return "copy";
  if (file == "sparse24") return "sparse24_" + attributes["step"].get<std::string>();
  return file;
}

}  // namespace

std::vector<Vector> ReadVectors(const std::string& path, const std::string& file) {
  std::vector<Vector> vectors;
  std::ifstream in(path + "/" + file + ".json");
  const Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    ADD_FAILURE() << "cannot read " << path << "/" << file << ".json";
    return vectors;
  }
  for (const Json& row : json["vectors"]) {
    Vector vector;
    vector.id = row["id"];
    vector.error = row.value("error", "");
    vector.compare = row.value("compare", "");
    if (row.contains("outputs")) {
      for (const Json& tensor : row["outputs"]) {
        vector.outputs.emplace_back(tensor["name"], Tensor(tensor));
      }
    }
    Json attributes = row["attributes"];
    const std::string kind = KindOf(file, attributes);
    const auto* field = v1::Operation::descriptor()->FindFieldByName(kind);
    if (field == nullptr) {
      ADD_FAILURE() << vector.id << ": no operation " << kind;
      continue;
    }
    auto* message = vector.operation.GetReflection()->MutableMessage(&vector.operation, field);
    for (const Json& tensor : row["inputs"]) {
      const std::string name = tensor["name"];
      const auto* attribute = message->GetDescriptor()->FindFieldByName(name);
      if (attribute != nullptr && attribute->message_type() == nullptr) {
        attributes[name] = tensor["data"];  // scale and zero_point of quantize
      } else {
        vector.inputs.emplace_back(OperandName(name, attributes), Tensor(tensor));
      }
    }
    const int spatial =
        vector.inputs.empty() ? 0 : static_cast<int>(vector.inputs[0].second.shape.size()) - 2;
    for (const auto& [key, value] : attributes.items()) {
      const std::string name = key == "kernel_size" ? "kernel" : key;
      const auto* attribute = message->GetDescriptor()->FindFieldByName(name);
      if (attribute == nullptr) {
        EXPECT_GT(NotAttributes().count(name), 0u) << vector.id << ": no attribute " << name;
        continue;
      }
      if (value.is_null()) continue;
      if (attribute->message_type() != nullptr) {  // offsets of grouped_gemm
        std::vector<double> numbers = value.get<std::vector<double>>();
        const int64_t count = static_cast<int64_t>(numbers.size());
        vector.inputs.emplace_back(name, MakeValue(DType::kS32, {count}, std::move(numbers)));
        continue;
      }
      if (!attribute->is_repeated() || !value.is_array()) {
        const int times = attribute->is_repeated() && OnePerSpatialDimension(name) ? spatial : 1;
        for (int i = 0; i < times; ++i) Set(message, attribute, value);
        continue;
      }
      for (const Json& each : value) Set(message, attribute, each);
    }
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

}  // namespace backendd::worker
