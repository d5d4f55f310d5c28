// Replays what a real PyTorch answered, step by step, on a fresh node a vector. Where the node is
// to answer otherwise, kDifferences says so and names the rule; any other difference fails.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "shared/status/error.h"
#include "tests/parity/flag_port.h"

namespace backendd::parity {
namespace {

using Json = nlohmann::json;

// An answer as text: a value, "unavailable", or the kind of an error.
using Answer = std::string;

bool Loads(const char* library) { return dlopen(library, RTLD_LAZY | RTLD_LOCAL) != nullptr; }
bool CudaWorker() { return std::filesystem::exists(BIN_DIR "/backendd-worker-cuda"); }
Answer YesNo(bool yes) { return yes ? "true" : "false"; }
Answer Cudnn(const char* there) { return CudaWorker() && Loads("libcudnn.so.9") ? there : "none"; }
Answer Cusparselt(const char* there) {
  return CudaWorker() && Loads("libcusparseLt.so.0") ? there : "none";
}
Answer BestOfTheCpu() {
  return __builtin_cpu_supports("avx512f") ? "AVX512"
         : __builtin_cpu_supports("avx2")  ? "AVX2"
                                           : "DEFAULT";
}

// `vector`: the beginning of its name. `answer` is found out by the test itself where the rule is
// about this build and machine; it may then be the recorded one.
struct Difference {
  const char* vector;
  const char* what;  // flag, or call with its first argument
  std::function<Answer()> answer;
  const char* rule;
};
const char kBuild[] = "build and machine";
const Difference kDifferences[] = {
    {"", "cuda.is_built", [] { return YesNo(CudaWorker()); }, kBuild},
    {"", "cuda.is_flash_attention_available", [] { return YesNo(CudaWorker()); }, kBuild},
    {"", "cudnn.is_available", [] { return YesNo(Cudnn("") != "none"); }, kBuild},
    {"", "cudnn.version", [] { return Cudnn("92600"); }, kBuild},
    {"", "cusparselt.is_available", [] { return YesNo(Cusparselt("") != "none"); }, kBuild},
    {"", "cusparselt.version", [] { return Cusparselt("801"); }, kBuild},
    {"", "mkl.is_available", [] { return "false"; }, kBuild},
    {"", "nnpack.is_available", [] { return "false"; }, kBuild},
    {"", "python_native.available_dsls", [] { return "[]"; }, kBuild},
    {"", "python_native.get_dsl_operations triton", [] { return "[]"; }, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-03", "cpu.get_cpu_capability", BestOfTheCpu, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-05", "cpu.get_cpu_capability", BestOfTheCpu, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-07", "cpu.get_cpu_capability", BestOfTheCpu, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-08", "cpu.get_cpu_capability", BestOfTheCpu, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-1", "cpu.get_cpu_capability", BestOfTheCpu, kBuild},
    {"environment/ATEN_CPU_CAPABILITY-01", "cpu.get_cpu_capability",
     [] { return BestOfTheCpu() == "DEFAULT" ? "DEFAULT" : "AVX2"; }, kBuild},
    {"", "quantized.supported_engines", [] { return "[x86, onednn]"; }, "quantized.engine"},
    {"environment/CUBLASLT_WORKSPACE_SIZE-08", "cuda.cublaslt_workspace_size",
     [] { return "1048576"; }, "environment"},
    {"environment/CUBLASLT_WORKSPACE_SIZE-09", "cuda.cublaslt_workspace_size",
     [] { return "1048576"; }, "environment"},
    {"environment/CUBLAS_WORKSPACE_CONFIG-00", "cuda.cublas_workspace_size",
     [] { return "33554432"; }, "names"},
    {"defaults/operations-of-dsls", "python_native.get_dsl_operations nonsense",
     [] { return "bad_arguments"; }, "python_native filters"},
};

// Malformed text that torch came to later or never; the node warns of it at start.
const char* const kTorchIsSilent[] = {
    "environment/CUBLAS_WORKSPACE_CONFIG-03",
    "environment/CUBLAS_WORKSPACE_CONFIG-05",
    "environment/CUBLASLT_WORKSPACE_SIZE-08",
    "environment/CUBLASLT_WORKSPACE_SIZE-09",
    "environment/TORCH_CUBLASLT_UNIFIED_WORKSPACE-03",
    "environment/TORCH_CUBLASLT_UNIFIED_WORKSPACE-05",
    "environment/TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT-02",
};

Answer KindOf(const absl::Status& status) {
  switch (ReasonOf(status).value_or(Reason::kInternal)) {
    case Reason::kFlagUnknown:
      return "unknown_name";
    case Reason::kFlagReadOnly:
      return "read_only";
    case Reason::kFlagUnavailable:
      return "unavailable";
    case Reason::kDeviceIndex:
      return "bad_index";
    case Reason::kArgumentInvalid:
      return "bad_arguments";
    case Reason::kPrecisionMixed:
      return "mixed";
    case Reason::kFlagValueInvalid:
      return "bad_value";
    default:
      return std::string(status.ToString());
  }
}

Answer AnswerOf(const absl::StatusOr<std::optional<FlagValue>>& answer) {
  if (!answer.ok()) return KindOf(answer.status());
  return answer->has_value() ? ToText(**answer) : "unavailable";
}

// The recorded result in the node's words.
Answer Recorded(const Json& result) {
  if (result.contains("error")) return result["error"]["kind"];
  if (result.contains("ok")) return "ok";
  const Json& value = result["value"];
  if (value.is_null()) return "none";
  if (value.is_string()) return value;
  if (value.is_array()) {
    TextList list;
    for (std::string item : value) {
      const std::map<std::string, std::string> kKernels = {{"FLASH_ATTENTION", "flash"},
                                                           {"EFFICIENT_ATTENTION", "efficient"},
                                                           {"MATH", "math"},
                                                           {"CUDNN_ATTENTION", "cudnn"},
                                                           {"OVERRIDEABLE", "overrideable"}};
      const auto kernel = kKernels.find(item);
      list.push_back(kernel == kKernels.end() ? item : kernel->second);
    }
    return ToText(list);
  }
  if (value.is_object() && value.contains("int")) return value["int"];
  if (value.is_object()) return "present";
  return value.dump();
}

class Replay {
 public:
  Replay(FlagPort& node, std::string vector) : node_(node), vector_(std::move(vector)) {}

  void Step(const Json& step) {
    const std::string kind = step["do"];
    if (kind == "start") return;
    std::string flag = step.value("flag", step.value("name", ""));
    if (kind == "set") {
      const Json& value = step["value"];
      ASSERT_TRUE(value.is_string()) << value;
      const absl::Status set = node_.Set(flag, value.get<std::string>());
      return Compare(flag, step["result"], set.ok() ? "ok" : KindOf(set));
    }
    std::vector<std::string> arguments;
    std::string what = flag;
    if (kind == "call") {
      for (const Json& argument : step["args"])
        arguments.push_back(argument.is_string() ? argument.get<std::string>() : argument.dump());
      what += " " + arguments.front();
    } else {
      ASSERT_EQ(kind, "get");
      if (flag == "mps.is_macos13_or_newer") arguments = {"0"};  // torch's default
    }
    Compare(what, step["result"], AnswerOf(node_.Get(flag, Device(&flag), arguments)));
  }

 private:
  // "cuda.cufft_plan_cache[0].size" is the flag without the index, asked of that device.
  static std::optional<std::string> Device(std::string* flag) {
    const size_t open = flag->find('['), close = flag->find(']');
    if (open == std::string::npos) return std::nullopt;
    const std::string device = flag->substr(open + 1, close - open - 1);
    flag->erase(open, close - open + 1);
    return device;
  }

  void Compare(const std::string& what, const Json& result, const Answer& answer) const {
    Answer expected = Recorded(result);
    for (const Difference& difference : kDifferences) {
      if (what != difference.what || vector_.rfind(difference.vector, 0) != 0) continue;
      const Answer differently = difference.answer();
      if (differently != expected)
        std::cout << vector_ << ": " << what << ": torch " << expected << ", this node "
                  << differently << " (" << difference.rule << ")\n";
      expected = differently;
      break;
    }
    if (expected == "present") {
      EXPECT_NE(answer, "none") << what;
      return;
    }
    // None is the wire's none or unavailable.
    const bool both_none = expected == "none" && answer == "unavailable";
    EXPECT_TRUE(answer == expected || both_none)
        << what << " answers " << answer << ", expected " << expected;
  }

  FlagPort& node_;
  const std::string vector_;
};

class FlagReplay : public ::testing::TestWithParam<const char*> {};

TEST_P(FlagReplay, AnswersAsTorchDoesButForWhatTheRulesSay) {
  std::ifstream file(std::string(VECTORS) + "/" + GetParam() + ".json");
  const Json topic = Json::parse(file);
  ASSERT_GT(topic["vectors"].size(), 50u);
  for (const Json& vector : topic["vectors"]) {
    const std::string id = vector["id"];
    SCOPED_TRACE(id);
    const auto node = StartNode(vector.value("env", std::map<std::string, std::string>()));
    bool torch_warned = false;
    Replay replay(*node, id);
    for (const Json& step : vector["steps"]) {
      SCOPED_TRACE(step.dump());
      replay.Step(step);
      if (step["do"] != "set") torch_warned |= step["result"].contains("warnings");
    }
    const bool silent = std::count(std::begin(kTorchIsSilent), std::end(kTorchIsSilent), id) > 0;
    EXPECT_EQ(node->warnings().size(), torch_warned || silent ? 1u : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Topics, FlagReplay, ::testing::Values("defaults", "environment"));

}  // namespace
}  // namespace backendd::parity
