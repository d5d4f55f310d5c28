#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "server/node/flags/environment.h"
#include "server/node/flags/flag_store.h"
#include "server/node/flags/queries.h"
#include "tests/parity/flag_port.h"

namespace backendd::parity {
namespace {

const SessionId kSession(1);

class StorePort final : public FlagPort {
 public:
  explicit StorePort(const std::map<std::string, std::string>& variables) {
    node::FlagStore::Options options;
    options.epoch = "parity";
    options.facts.cpu_capability = __builtin_cpu_supports("avx512f") ? "AVX512"
                                   : __builtin_cpu_supports("avx2")  ? "AVX2"
                                                                     : "DEFAULT";
    options.facts.libraries = {
        {"onednn", "3"}, {"openblas", "0.3"}, {"fftw", "3"}, {"openmp", "4.5"}};
    node::Environment environment = node::ParseEnvironment(variables, options.facts);
    warnings_ = std::move(environment.warnings);
    options.environment = std::move(environment.entries);
    auto store = node::FlagStore::Create(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    store_->SetSemantics(kSession, true);
    store_->Apply("session", true);
  }

  const std::vector<std::string>& warnings() const override { return warnings_; }

  absl::StatusOr<std::optional<FlagValue>> Get(const std::string& flag,
                                               const std::optional<std::string>& device,
                                               const std::vector<std::string>& arguments) override {
    const auto id = Catalogue::Get().Lookup(flag);
    if (!id.ok()) return id.status();
    const auto snapshot = store_->latest();
    const auto& devices = snapshot->devices();
    if (device.has_value() && std::count(devices.begin(), devices.end(), *device) == 0)
      return Error(Reason::kDeviceIndex, "this node has 0 CUDA devices");
    const auto reading = node::Answer(*snapshot, *id, arguments, device, kSession);
    if (!reading.ok()) return reading.status();
    return reading->value;
  }

  absl::Status Set(const std::string& flag, const FlagValue& value) override {
    node::RequestedEntry requested;
    requested.flag = flag;
    requested.value = value;
    requested.field = "assignments[0]";
    std::vector<Violation> violations;
    auto entries = store_->Check({&requested, 1}, kSession, true, &violations);
    if (!violations.empty()) return ErrorFrom(std::move(violations));
    store_->SetBare(kSession, std::move(entries), {"replay", ""});
    store_->Apply("set", false);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<node::FlagStore> store_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::unique_ptr<FlagPort> StartNode(const std::map<std::string, std::string>& variables) {
  return std::make_unique<StorePort>(variables);
}

}  // namespace backendd::parity
