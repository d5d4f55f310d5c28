// One operation on one device, from the message to the bytes, with neither daemon nor wire: what
// the contract suite asks every implementation of the seam.
#ifndef BACKENDD_TESTS_CONTRACT_HARNESS_H_
#define BACKENDD_TESTS_CONTRACT_HARNESS_H_

#include <complex>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "server/worker/device/device.h"

namespace backendd::worker {

// A tensor on the host: numbers in the order of the indices, whatever the strides.
struct Value {
  DType dtype = DType::kUnspecified;
  Extents shape;
  Extents strides;  // none: row-major
  std::vector<std::complex<double>> data;

  double at(size_t i) const { return data[i].real(); }
  size_t size() const { return data.size(); }
};
Value MakeValue(DType dtype, Extents shape, std::vector<double> numbers = {});
// Multiples of 1/32 in [-2, 2]: exact in f32.
Value RandomValue(DType dtype, Extents shape, int seed);
// The same numbers in memory of these strides.
Value WithStrides(Value value, Extents strides);
Value As(Value value, DType dtype);

// Flags at their defaults, but for those set here.
class TestFlags final : public FlagValues {
 public:
  TestFlags();
  TestFlags& Set(absl::string_view name, FlagValue value);
  const FlagState& Get(FlagId flag) const override { return states_[flag]; }

 private:
  std::vector<FlagState> states_;
};

struct Result {
  std::map<std::string, Value> outputs;  // by field name, lists as "y.0"
  Choice choice;
  Fault fault;

  const Value& operator[](const std::string& name) const { return outputs.at(name); }
};

using Operands = std::vector<std::pair<std::string, Value>>;

// Decode, Infer, BuildPlan, Run. Outputs without a dtype take the type that Infer gives them.
// Memory around the operands must stay as it was. A fault of the run is a status too.
absl::StatusOr<Result> RunOperation(Device& device, v1::Operation operation, const Operands& inputs,
                                    const Operands& outputs, const FlagValues& flags = TestFlags());

struct DeviceFactory {
  std::string name;
  std::function<std::unique_ptr<Device>()> create;
};
// Every implementation of the seam that this build has.
std::vector<DeviceFactory> DeviceFactories();

// A suite with one device for all of its tests; the parameter is the factory's index.
class DeviceContract : public ::testing::TestWithParam<int> {
 protected:
  Device& device();
  Result Run(const v1::Operation& operation, const Operands& inputs, const Operands& outputs,
             const FlagValues& flags = TestFlags());
  // The reasons of the refusal; empty: it was not refused.
  std::vector<Reason> Refused(const v1::Operation& operation, const Operands& inputs,
                              const Operands& outputs, const FlagValues& flags = TestFlags());
};

double Epsilon(DType dtype);
// |got - expected| <= factor eps scale for every number; NaN equals NaN, Inf equals Inf.
::testing::AssertionResult Near(const Value& got, const Value& expected, double scale,
                                double factor = 32);

}  // namespace backendd::worker

#endif  // BACKENDD_TESTS_CONTRACT_HARNESS_H_
