#include "server/node/flags/facts.h"

#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

using Ask = std::function<BuiltIn(const NodeFacts&)>;

BuiltIn Yes(bool yes, absl::string_view reason_of_no) {
  return {FlagValue(yes), yes ? "" : Str(reason_of_no)};
}

Ask Never(absl::string_view what) {
  return [reason = absl::StrCat("this build has no ", what)](const NodeFacts&) {
    return Yes(false, reason);
  };
}

Ask HasLibrary(std::string name) {
  return [name](const NodeFacts& facts) {
    return Yes(facts.libraries.count(name) > 0,
               absl::StrCat("no worker of this node has loaded ", name));
  };
}

// A version as torch gives it, 91500 for "9.15.0" or "91500"; nullopt: unknown.
std::optional<int64_t> LibraryVersion(const NodeFacts& facts, const std::string& name) {
  const auto found = facts.libraries.find(name);
  int64_t number = 0;
  if (found == facts.libraries.end() || !absl::SimpleAtoi(found->second, &number))
    return std::nullopt;
  return number;
}

Ask Version(std::string name) {
  return [name](const NodeFacts& facts) -> BuiltIn {
    const auto version = LibraryVersion(facts, name);
    if (version.has_value()) return {FlagValue(*version), ""};
    return {FlagValue(None{}), absl::StrCat("no worker of this node has loaded ", name)};
  };
}

BuiltIn MaxAlgorithm(const NodeFacts& facts) {
  const auto version = LibraryVersion(facts, "cusparselt");
  for (const auto& [known, id] : {std::pair{400, 4}, {502, 5}, {602, 37}}) {
    if (version == known) return {FlagValue(int64_t{id}), ""};
  }
  return {FlagValue(None{}), "unknown for this version of cusparselt, or none"};
}

const NodeFacts::Provider* ProviderOf(const NodeFacts& facts, const std::string& dsl) {
  const auto found = facts.providers.find(dsl);
  return found == facts.providers.end() ? nullptr : &found->second;
}

std::map<FlagId, Ask> MakeAnswers() {
  std::map<FlagId, Ask> answers;
  const auto put = [&](absl::string_view name, Ask ask) {
    answers[FlagIdOf(name)] = std::move(ask);
  };
  const auto cuda = [](const NodeFacts& facts) {
    return Yes(facts.cuda_built, "this build has no CUDA worker");
  };
  put("cpu.get_cpu_capability", [](const NodeFacts& facts) -> BuiltIn {
    return {FlagValue(facts.cpu_capability), ""};
  });
  put("cuda.is_built", cuda);
  put("cuda.is_flash_attention_available", cuda);
  put("cuda.is_ck_sdpa_available", Never("CK attention"));
  put("cuda.cufft_plan_cache", [](const NodeFacts& facts) -> BuiltIn {
    return {FlagValue(TextList(DevicesOf(facts))), ""};
  });
  put("cudnn.is_available", HasLibrary("cudnn"));
  put("cudnn.version", Version("cudnn"));
  put("cusparselt.is_available", HasLibrary("cusparselt"));
  put("cusparselt.version", Version("cusparselt"));
  put("cusparselt.get_max_alg_id", MaxAlgorithm);
  put("kleidiai.is_available", Never("KleidiAI"));
  put("mkl.is_available", HasLibrary("mkl"));
  put("mkldnn.is_available", HasLibrary("onednn"));
  put("mkldnn.is_acl_available", Never("Arm Compute Library"));
  put("mps.is_built", Never("MPS"));
  put("mps.is_available", Never("MPS"));
  put("nnpack.is_available", Never("NNPACK"));
  put("openmp.is_available", HasLibrary("openmp"));
  put("xnnpack.enabled", Never("XNNPACK"));
  put("opt_einsum.is_available", [](const NodeFacts& facts) {
    return Yes(facts.einsum_planner, "this node has no contraction planner");
  });
  put("opt_einsum.get_opt_einsum", [](const NodeFacts& facts) -> BuiltIn {
    if (facts.einsum_planner) return {FlagValue("backendd"), ""};
    return {FlagValue(None{}), "this node has no contraction planner"};
  });
  put("python_native.available_dsls", [](const NodeFacts& facts) -> BuiltIn {
    TextList names;
    for (const auto& [name, provider] : facts.providers) names.push_back(name);
    return {FlagValue(names), names.empty() ? "no kernel provider is on this node" : ""};
  });
  const FlagInfo& dsls = *Catalogue::Get().Find("python_native.all_dsls");
  for (const std::string& dsl : std::get<TextList>(*dsls.default_value)) {
    const std::string absent = absl::StrCat("no kernel provider '", dsl, "' is on this node");
    put(absl::StrCat("python_native.", dsl, ".available"), [dsl, absent](const NodeFacts& facts) {
      return Yes(ProviderOf(facts, dsl) != nullptr, absent);
    });
    put(absl::StrCat("python_native.", dsl, ".version"),
        [dsl, absent](const NodeFacts& facts) -> BuiltIn {
          const auto* provider = ProviderOf(facts, dsl);
          if (provider == nullptr) return {FlagValue(None{}), absent};
          return {FlagValue(provider->version), ""};
        });
  }
  return answers;
}

// Flags whose built-in value follows a device.
struct ByDevice {
  FlagId cublas_workspace = FlagIdOf("cuda.cublas_workspace_size");
  FlagId sdp_order = FlagIdOf("cuda.sdp_priority_order");
  FlagId plan_size = FlagIdOf("cuda.cufft_plan_cache.size");
  FlagId plan_max = FlagIdOf("cuda.cufft_plan_cache.max_size");
  FlagId einsum_enabled = FlagIdOf("opt_einsum.enabled");
  FlagId einsum_strategy = FlagIdOf("opt_einsum.strategy");
  FlagId xpu_tf32 = FlagIdOf("mkldnn.allow_tf32");
};
const ByDevice& Ids() {
  static const ByDevice* ids = new ByDevice();
  return *ids;
}

// The CUDA device meant: the named one, for the node the first; nullptr: none.
const NodeFacts::Cuda* CudaOf(const std::optional<DeviceId>& device, const NodeFacts& facts) {
  for (const NodeFacts::Cuda& cuda : facts.cuda_devices) {
    if (!device.has_value() || cuda.id == *device) return &cuda;
  }
  return nullptr;
}

}  // namespace

BuiltIn BuiltInOf(FlagId flag, const std::optional<DeviceId>& device, const NodeFacts& facts) {
  static const auto* answers = new std::map<FlagId, Ask>(MakeAnswers());
  if (const auto ask = answers->find(flag); ask != answers->end()) return ask->second(facts);
  const FlagInfo& info = Catalogue::Get().info(flag);
  if (flag == Ids().cublas_workspace) {
    const NodeFacts::Cuda* cuda = CudaOf(device, facts);
    if (cuda == nullptr) return {std::nullopt, "no CUDA device gives it a default"};
    const int major = cuda->capability_major;
    const bool large = major == 9 || major == 10 || major == 12;
    return {FlagValue(int64_t{large ? 32768 : 8320} * 1024), ""};
  }
  if (flag == Ids().sdp_order) {
    const NodeFacts::Cuda* cuda = CudaOf(device, facts);
    const int capability =
        cuda == nullptr ? 0 : cuda->capability_major * 10 + cuda->capability_minor;
    if ((capability == 90 || capability == 100 || capability == 103) &&
        LibraryVersion(facts, "cudnn").value_or(0) > 91500)
      return {*Normalise(info, FlagValue(TextList{"cudnn"})), ""};
  }
  if (info.access == FlagAccess::kAction)
    return {std::nullopt, absl::StrCat("an act, which has no value: ", info.summary)};
  if (info.over_tensors) return {std::nullopt, "answered for operands only"};
  if (!info.arguments.empty())
    return {std::nullopt,
            absl::StrCat("asked with arguments: ", absl::StrJoin(info.arguments, ", "))};
  if (info.live) return {std::nullopt, "a number that only the device's worker knows"};
  return {info.default_value, info.default_value.has_value() ? "" : "has no value of its own"};
}

std::string UnavailableBecause(FlagId flag, const std::optional<DeviceId>& device,
                               const NodeFacts& facts) {
  const ByDevice& ids = Ids();
  if (flag == ids.xpu_tf32) return "this node has no Intel GPU";
  if (Catalogue::Get().info(flag).needs == "MPS") return "this build has no MPS";
  if ((flag == ids.einsum_enabled || flag == ids.einsum_strategy) && !facts.einsum_planner)
    return "this node has no contraction planner";
  // Each device has a cache, the CPU too; the node's is that of the first CUDA device.
  if ((flag == ids.plan_size || flag == ids.plan_max) && device != DeviceId("cpu") &&
      CudaOf(device, facts) == nullptr)
    return "this node has no CUDA device; the CPU's cache is that of device 'cpu'";
  return "";
}

std::vector<DeviceId> DevicesOf(const NodeFacts& facts) {
  std::vector<DeviceId> devices = {"cpu"};
  for (const NodeFacts::Cuda& cuda : facts.cuda_devices) devices.push_back(cuda.id);
  return devices;
}

}  // namespace backendd::node
