#include "tests/contract/recorded.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
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
    value.data.push_back(Complex(json["data"][offset]));
  }
  return value;
}

// Attributes that shapes tell, or that only choose the operation.
const std::set<std::string>& NotAttributes() {
  static const auto* const names = new std::set<std::string>{
      "spatial", "x_shape", "w_shape", "from", "to", "pair_sums_fit_16_bits", "gradient", "rows"};
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

std::string KindOf(const std::string& file, const Json& attributes) {
  if (file == "batched_gemm" || file == "gemm_narrow") return "gemm";
  if (file == "embedding" && attributes.value("gradient", false)) return "embedding_gradient";
  if (file == "cast") return "copy";
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
    for (const Json& tensor : row["inputs"]) {
      vector.inputs.emplace_back(tensor["name"], Tensor(tensor));
    }
    if (row.contains("outputs")) {
      for (const Json& tensor : row["outputs"]) {
        vector.outputs.emplace_back(tensor["name"], Tensor(tensor));
      }
    }
    const Json& attributes = row["attributes"];
    const std::string kind = KindOf(file, attributes);
    const auto* field = v1::Operation::descriptor()->FindFieldByName(kind);
    if (field == nullptr) {
      ADD_FAILURE() << vector.id << ": no operation " << kind;
      continue;
    }
    auto* message = vector.operation.GetReflection()->MutableMessage(&vector.operation, field);
    const int spatial =
        vector.inputs.empty() ? 0 : static_cast<int>(vector.inputs[0].second.shape.size()) - 2;
    for (const auto& [key, value] : attributes.items()) {
      const std::string name = key == "kernel_size" ? "kernel" : key;
      if (value.is_null() || NotAttributes().count(name) > 0) continue;
      const auto* attribute = message->GetDescriptor()->FindFieldByName(name);
      if (attribute == nullptr) {
        ADD_FAILURE() << vector.id << ": no attribute " << name;
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
