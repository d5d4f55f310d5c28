#include "tests/contract/vectors.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

double Real(const json& value) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (value.is_string()) {
    const std::string text = value;
    return text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                         : text == "Inf" ? kInf : -kInf;
  }
  return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
}

// Data with strides is recorded in memory order; a Value has it in the order of the indices.
Value ReadValue(const json& j) {
  Value value;
  value.dtype = *DTypeFromName(View(j.at("dtype").get<std::string>()));
  for (int64_t extent : j.at("shape")) value.shape.push_back(extent);
  std::vector<std::complex<double>> memory;
  for (const json& number : j.at("data")) {
    memory.push_back(number.is_array() ? std::complex<double>(Real(number[0]), Real(number[1]))
                                       : std::complex<double>(Real(number)));
  }
  if (!j.contains("strides")) {
    value.data = std::move(memory);
    return value;
  }
  for (int64_t stride : j.at("strides")) value.strides.push_back(stride);
  int64_t count = 1;
  for (int64_t extent : value.shape) count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = 0, rest = i;
    for (int d = static_cast<int>(value.shape.size()) - 1; d >= 0; --d) {
      at += rest % value.shape[d] * value.strides[d];
      rest /= value.shape[d];
    }
    value.data.push_back(memory.at(at));
  }
  return value;
}

// gelu_erf is EPILOGUE_GELU_ERF; a word that is no name becomes a number without one.
int EnumNumber(const FieldDescriptor& field, const std::string& word) {
  const std::string none = field.enum_type()->value(0)->name();
  const std::string prefix = none.substr(0, none.size() - std::strlen("UNSPECIFIED"));
  const auto* value = field.enum_type()->FindValueByName(prefix + absl::AsciiStrToUpper(word));
  return value == nullptr ? 99 : value->number();
}

// `repeat`: how often one number stands in a list.
void SetAttribute(Message* m, const FieldDescriptor& field, const json& value, int repeat) {
  const Reflection& r = *m->GetReflection();
  auto each = [&](auto set, auto add) {
    if (!field.is_repeated()) return set(value);
    if (value.is_array()) {
      for (const json& one : value) add(one);
    } else {
      for (int i = 0; i < repeat; ++i) add(value);
    }
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(m, &field, value.get<bool>());
    case FieldDescriptor::CPPTYPE_INT64:
      return each([&](const json& v) { r.SetInt64(m, &field, v.get<int64_t>()); },
                  [&](const json& v) { r.AddInt64(m, &field, v.get<int64_t>()); });
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return each([&](const json& v) { r.SetDouble(m, &field, Real(v)); },
                  [&](const json& v) { r.AddDouble(m, &field, Real(v)); });
    case FieldDescriptor::CPPTYPE_STRING:
      return r.SetString(m, &field, value.get<std::string>());
    case FieldDescriptor::CPPTYPE_ENUM:
      return r.SetEnumValue(m, &field, EnumNumber(field, value.get<std::string>()));
    default:
      return;
  }
}

std::string KindOf(const json& vector) {
  const std::string operation = vector.at("operation");
  const json& attributes = vector.at("attributes");
  if (operation == "batched_gemm" || operation == "gemm_narrow") return "gemm";
  if (operation == "cast") return "copy";
  if (operation == "embedding" && attributes.value("gradient", false)) return "embedding_gradient";
  if (operation == "sparse24") return "sparse24_" + attributes.at("step").get<std::string>();
  return operation;
}

// "weight_ih_l1_reverse" is "weights.3.weight_ih", "out_proj.weight" is "out_proj_weight".
std::string OperandName(const Message& m, const std::string& name, bool bidirectional) {
  for (const char* weight : {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"}) {
    if (!absl::StartsWith(name, absl::StrCat(weight, "_l"))) continue;
    const std::string rest = name.substr(std::strlen(weight) + 2);
    const int set = std::stoi(rest) * (bidirectional ? 2 : 1) + absl::EndsWith(rest, "_reverse");
    return absl::StrCat("weights.", set, ".", weight);
  }
  const std::string whole = absl::StrReplaceAll(name, {{".", "_"}});
  return m.GetDescriptor()->FindFieldByName(whole) != nullptr ? whole : name;
}

Vector ReadVector(const json& j) {
  Vector vector;
  vector.id = j.at("id");
  vector.error = j.value("error", "");
  vector.compare = j.value("compare", "");
  vector.note = j.contains("note") && j["note"].is_string() ? j["note"].get<std::string>() : "";
  const auto* kind = vector.operation.GetDescriptor()->FindFieldByName(KindOf(j));
  if (kind == nullptr) return vector;  // transformer_encoder_layer: of several operations
  Message* const m = vector.operation.GetReflection()->MutableMessage(&vector.operation, kind);
  const json& attributes = j.at("attributes");
  const bool bidirectional = attributes.value("bidirectional", false);
  int repeat = 1;
  for (const json& input : j.at("inputs")) {
    const std::string name = input.at("name");
    const auto* field = m->GetDescriptor()->FindFieldByName(name);
    if (field != nullptr && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      SetAttribute(m, *field, input.at("data"), 1);  // scale and zero_point of quantize
      continue;
    }
    vector.inputs.emplace_back(OperandName(*m, name, bidirectional), ReadValue(input));
    if (vector.operation.has_pooling()) {
      repeat = std::max(1, static_cast<int>(vector.inputs[0].second.shape.size()) - 2);
    }
  }
  for (const auto& [name, value] : attributes.items()) {
    const auto* field =
        m->GetDescriptor()->FindFieldByName(name == "kernel_size" ? "kernel" : name);
    if (field != nullptr && !value.is_null()) SetAttribute(m, *field, value, repeat);
  }
  if (j.contains("outputs")) {
    for (const json& output : j.at("outputs")) {
      vector.outputs.emplace_back(output.at("name").get<std::string>(), ReadValue(output));
    }
  }
  return vector;
}

}  // namespace

std::vector<Vector> ReadVectors(const std::string& folder, const std::string& file) {
  std::ifstream in(absl::StrCat(folder, "/", file, ".json"));
  EXPECT_TRUE(in.good()) << "no vectors " << file;
  std::vector<Vector> vectors;
  const json all = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return vectors;
  for (const json& vector : all.at("vectors")) vectors.push_back(ReadVector(vector));
  return vectors;
}

}  // namespace backendd::worker
