// Replays what a real PyTorch gave, at the seam: as recorded, and narrowed to single precision.
#include <cmath>
#include <iostream>
#include <set>

#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

// Files whose every vector is computed here.
const char* const kFiles[] = {"gemm",
                              "batched_gemm",
                              "convolution_forward",
                              "convolution_input_gradient",
                              "convolution_weight_gradient",
                              "activation",
                              "softmax",
                              "cross_entropy",
                              "reduction",
                              "pooling",
                              "embedding",
                              "layer_norm",
                              "batch_norm",
                              "fft",
                              "cast",
                              "sdpa",
                              "sdpa_gradient"};

// Outputs whose shape the inputs do not tell.
bool NeedsShape(const std::string& name) {
  return name == "dx" || name == "dw" || name == "dweight";
}

std::set<Reason> Expected(const std::string& error) {
  if (error == "shape") return {Reason::kShapeInvalid};
  if (error == "dtype") return {Reason::kDtypeInvalid};
  if (error == "unsupported") return {Reason::kOpUnsupported};
  return {Reason::kArgumentInvalid, Reason::kIndexInvalid, Reason::kNotConverged};
}

// 32 eps of the sum of the magnitudes, which is at most the largest number times the terms.
double Scale(const Vector& vector, const Value& expected) {
  double largest = 1;
  for (const auto& number : expected.data) {
    if (std::isfinite(std::abs(number))) largest = std::max(largest, std::abs(number));
  }
  size_t terms = 1;
  for (const auto& [name, value] : vector.inputs) {
    if (value.size() > terms) terms = value.size();
  }
  return largest * std::sqrt(static_cast<double>(terms));
}

// Whether single precision holds the inputs.
bool Fits(const Vector& vector) {
  for (const auto& [name, value] : vector.inputs) {
    for (const auto& number : value.data) {
      if (std::isfinite(std::abs(number)) && std::abs(number) > 1e38) return false;
    }
  }
  return true;
}

Value Narrowed(Value value) {
  if (value.dtype == DType::kF64) value.dtype = DType::kF32;
  if (value.dtype == DType::kC128) value.dtype = DType::kC64;
  return value;
}

// Beside the operation: the bits of a cast, y of a gradient.
bool NotBound(const Vector& vector, const std::string& name) {
  return (vector.operation.has_copy() && name == "bits") ||
         (vector.operation.has_sdpa_gradient() && name == "y");
}

class Parity : public DeviceContract {
 protected:
  void Replay(const Vector& vector, bool narrow) {
    Operands inputs, outputs;
    for (const auto& [name, value] : vector.inputs) {
      inputs.emplace_back(name, narrow ? Narrowed(value) : value);
    }
    // A recording of a fault may lack what it does not need; zeros let the fault be the only one.
    if (vector.id == "batch_norm/running_length") {
      inputs.emplace_back("running_var", MakeValue(DType::kF64, {inputs[0].second.shape[1]}));
    }
    const bool is_cast = vector.operation.has_copy();
    for (const auto& [name, value] : vector.outputs) {
      if (NotBound(vector, name)) continue;
      bool in_out = false;  // given already, comes back changed
      for (const auto& [given, value_in] : vector.inputs) in_out = in_out || given == name;
      if (in_out) continue;
      Value open;
      if (NeedsShape(name) || is_cast) {
        open.dtype = narrow ? Narrowed(value).dtype : value.dtype;
        open.shape = value.shape;
      }
      outputs.emplace_back(name, std::move(open));
    }
    if (!vector.error.empty()) {
      // The outputs of a refused operation are the required ones.
      for (const char* name : {"y", "dx", "dw"}) {
        const auto* kind =
            v1::Operation::descriptor()->FindFieldByNumber(vector.operation.kind_case());
        if (kind->message_type()->FindFieldByName(name) != nullptr) {
          outputs.emplace_back(name, Value());
        }
      }
      const std::vector<Reason> reasons = Refused(vector.operation, inputs, outputs);
      const std::set<Reason> wanted = Expected(vector.error);
      bool found = false;
      for (Reason reason : reasons) found = found || wanted.count(reason) > 0;
      EXPECT_TRUE(found) << vector.id << " gave " << reasons.size() << " reasons, none is "
                         << vector.error;
      return;
    }
    const absl::StatusOr<Result> result = RunOperation(device(), vector.operation, inputs, outputs);
    ASSERT_TRUE(result.ok()) << vector.id << ": " << result.status();
    for (const auto& [name, expected] : vector.outputs) {
      if (NotBound(vector, name)) continue;
      const auto got = result->outputs.find(name);
      ASSERT_NE(got, result->outputs.end()) << vector.id << " " << name;
      const bool exact = vector.compare == "exact" && !narrow;
      const auto near = Near(got->second, expected, exact ? 0 : Scale(vector, expected));
      if (vector.compare == "advisory") {
        if (!near) std::cout << "advisory " << vector.id << ": " << near.message() << "\n";
        continue;
      }
      EXPECT_TRUE(near) << vector.id << (narrow ? " narrowed" : "") << " " << name;
    }
  }
};

TEST_P(Parity, EveryRecordedVectorIsReproduced) {
  for (const char* file : kFiles) {
    for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, file)) {
      Replay(vector, /*narrow=*/false);
    }
  }
}

TEST_P(Parity, EveryRecordedVectorIsReproducedInSinglePrecision) {
  for (const char* file : kFiles) {
    for (const Vector& vector : ReadVectors(BACKENDD_VECTORS, file)) {
      const bool wide_only =
          !vector.error.empty() || vector.compare == "exact" || vector.operation.has_copy();
      if (!wide_only && Fits(vector)) Replay(vector, /*narrow=*/true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Parity, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
