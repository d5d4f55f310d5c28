#include "server/node/flags/environment.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "shared/text.h"

namespace backendd::node {
namespace {

// CPU capabilities, lowest first, as the variable and the flag spell them.
constexpr std::pair<absl::string_view, absl::string_view> kCapabilities[] = {
    {"default", "DEFAULT"}, {"avx2", "AVX2"}, {"avx512", "AVX512"}};

class Parser {
 public:
  Parser(const std::map<std::string, std::string>& variables, const NodeFacts& facts)
      : variables_(variables), facts_(facts) {}

  Environment Parse() {
    Switch("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "cuda.matmul.fp32_precision", {}, "tf32",
           "cuda.matmul.allow_tf32");
    EitherSwitch({"TORCH_BLAS_PREFER_CUBLASLT", "TORCH_BLAS_PREFER_HIPBLASLT"},
                 "cuda.preferred_blas_library", "cublas", "cublaslt");
    EitherSwitch({"TORCH_LINALG_PREFER_CUSOLVER", "TORCH_LINALG_PREFER_HIPSOLVER"},
                 "cuda.preferred_linalg_library", "default", "cusolver");
    Switch("TORCH_ROCM_FA_PREFER_CK", "cuda.preferred_rocm_fa_library", "default", "ck");
    CublasWorkspace();
    CublasltWorkspace();
    SdpOrder();
    CpuCapability();
    Verbose({"MKL_VERBOSE"}, "mkl.verbose");
    Verbose({"ONEDNN_VERBOSE", "DNNL_VERBOSE"}, "mkldnn.verbose");
    // Exactly 1 counts, as torch reads it; another text is not malformed.
    if (Raw("TORCH_DISABLE_NATIVE_AOT") == "1")
      Add("python_native.aot_enabled", false, "TORCH_DISABLE_NATIVE_AOT");
    // Variables without a flag: only malformed text is of interest here.
    Flag("TORCH_CUDNN_SDPA_NESTED_TENSOR_ENABLED", "", "");
    if (const auto* text = Find("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT");
        text != nullptr && !StartsWithNumber(*text).has_value())
      Warn("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "", *text, "10000");
    return std::move(environment_);
  }

 private:
  const std::string* Find(const std::string& variable) const {
    const auto found = variables_.find(variable);
    return found == variables_.end() ? nullptr : &found->second;
  }
  absl::string_view Raw(const std::string& variable) const {
    const std::string* text = Find(variable);
    return text == nullptr ? absl::string_view() : absl::string_view(*text);
  }

  LayerEntry& Add(absl::string_view flag, FlagValue value, absl::string_view variable) {
    LayerEntry entry;
    entry.flag = FlagIdOf(flag);
    entry.layer = Layer::kEnvironment;
    entry.value = std::move(value);
    entry.source = Str(variable);
    environment_.entries.push_back(std::move(entry));
    return environment_.entries.back();
  }

  // One warning for the log, and where the variable sets a flag, an entry that shows it.
  void Warn(absl::string_view variable, absl::string_view flag, absl::string_view text,
            absl::string_view used) {
    const std::string warning =
        absl::StrFormat("ignoring %s='%s', which is not understood; used instead: %s", variable,
                        ValidUtf8(text), used);
    environment_.warnings.push_back(warning);
    if (!flag.empty()) Add(flag, None{}, variable).warning = warning;
  }

  // "0", "1", or nothing; any other text is one warning and nothing.
  std::optional<bool> Flag(const std::string& variable, absl::string_view flag,
                           absl::string_view used) {
    const std::string* text = Find(variable);
    if (text == nullptr) return std::nullopt;
    if (*text == "0" || *text == "1") return *text == "1";
    Warn(variable, flag, *text, used.empty() ? "the default" : used);
    return std::nullopt;
  }

  void Switch(const std::string& variable, absl::string_view flag, std::optional<FlagValue> off,
              FlagValue on, absl::string_view via = "") {
    const FlagInfo& info = *Catalogue::Get().Find(flag);
    const auto set = Flag(variable, flag, ToText(*info.default_value));
    if (!set.has_value() || (!*set && !off.has_value())) return;
    LayerEntry& entry = Add(flag, *set ? std::move(on) : std::move(*off), variable);
    if (!via.empty()) entry.via = FlagIdOf(via);
  }

  // Of two names for one switch: either 1 wins, then either 0. Both are read, so that each
  // malformed one is warned of.
  void EitherSwitch(const std::array<std::string, 2>& variables, absl::string_view flag,
                    absl::string_view off, absl::string_view on) {
    const FlagInfo& info = *Catalogue::Get().Find(flag);
    std::optional<bool> set;
    std::string by;
    for (const std::string& variable : variables) {
      const auto one = Flag(variable, flag, ToText(*info.default_value));
      if (!one.has_value() || (set.has_value() && *set >= *one)) continue;
      set = one;
      by = variable;
    }
    if (set.has_value()) Add(flag, FlagValue(Str(*set ? on : off)), by);
  }

  void CublasWorkspace() {
    const std::string* text = Find("CUBLAS_WORKSPACE_CONFIG");
    if (text == nullptr) return;
    if (WorkspaceBytes(*text).has_value()) {
      Add("cuda.cublas_workspace_size", *text, "CUBLAS_WORKSPACE_CONFIG");
      return;
    }
    std::string used = "the default of each device";
    for (const NodeFacts::Cuda& cuda : facts_.cuda_devices) {
      const BuiltIn bytes = BuiltInOf(FlagIdOf("cuda.cublas_workspace_size"), cuda.id, facts_);
      absl::StrAppend(&used, ", ", ToText(*bytes.value), " bytes on ", cuda.id);
    }
    Warn("CUBLAS_WORKSPACE_CONFIG", "cuda.cublas_workspace_size", *text, used);
  }

  // The number that C's stoi finds: blanks and a sign in front, junk behind; within 32 bits.
  static std::optional<int64_t> StartsWithNumber(absl::string_view text) {
    size_t begin = 0;
    while (begin < text.size() && absl::ascii_isspace(text[begin])) ++begin;
    size_t end = begin;
    if (end < text.size() && (text[end] == '+' || text[end] == '-')) ++end;
    while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
    int32_t number = 0;
    if (!absl::SimpleAtoi(text.substr(begin, end - begin), &number)) return std::nullopt;
    return number;
  }

  void CublasltWorkspace() {
    constexpr absl::string_view kFlag = "cuda.cublaslt_workspace_size";
    const auto cached = Flag("TORCH_CUBLAS_WORKSPACE_CACHE", kFlag, "0");
    const auto unify = Flag("TORCH_CUBLASLT_UNIFIED_WORKSPACE", kFlag, "1");
    const bool unified = cached.value_or(false) && unify.value_or(true);
    if (const std::string* text = Find("CUBLASLT_WORKSPACE_SIZE")) {
      const auto kib = StartsWithNumber(*text);
      if (kib.has_value() && *kib >= 0) {
        Add(kFlag, *kib * 1024, "CUBLASLT_WORKSPACE_SIZE");
        return;
      }
      Warn("CUBLASLT_WORKSPACE_SIZE", kFlag, *text, "1048576 bytes");
    }
    if (!unified) return;
    // cuBLASLt works in cuBLAS's buffer: the size is that of the environment or the device.
    constexpr absl::string_view kVariable = "TORCH_CUBLAS_WORKSPACE_CACHE";
    if (const auto bytes = WorkspaceBytes(Raw("CUBLAS_WORKSPACE_CONFIG"))) {
      Add(kFlag, *bytes, kVariable);
      return;
    }
    for (const NodeFacts::Cuda& cuda : facts_.cuda_devices) {
      const BuiltIn bytes = BuiltInOf(FlagIdOf("cuda.cublas_workspace_size"), cuda.id, facts_);
      Add(kFlag, *bytes.value, kVariable).device = cuda.id;
    }
  }

  void SdpOrder() {
    constexpr absl::string_view kFlag = "cuda.sdp_priority_order";
    if (Flag("TORCH_CUDNN_SDPA_DEPRIORITIZED", kFlag, "the default").value_or(false))
      Add(kFlag, *Catalogue::Get().Find(kFlag)->default_value, "TORCH_CUDNN_SDPA_DEPRIORITIZED");
  }

  // A cap: the CPU may be able to do less.
  void CpuCapability() {
    constexpr absl::string_view kFlag = "cpu.get_cpu_capability";
    const std::string* text = Find("ATEN_CPU_CAPABILITY");
    if (text == nullptr) return;
    bool at_best = false;  // this CPU can do no more than what was looked at
    for (const auto& [word, capability] : kCapabilities) {
      if (word == *text) {
        Add(kFlag, at_best ? facts_.cpu_capability : Str(capability), "ATEN_CPU_CAPABILITY");
        return;
      }
      at_best = at_best || capability == facts_.cpu_capability;
    }
    Warn("ATEN_CPU_CAPABILITY", kFlag, *text, facts_.cpu_capability);
  }

  // The first that is set counts, as the library reads them.
  void Verbose(const std::vector<std::string>& variables, absl::string_view flag) {
    const FlagInfo& info = *Catalogue::Get().Find(flag);
    for (const std::string& variable : variables) {
      const std::string* text = Find(variable);
      if (text == nullptr) continue;
      int64_t level = 0;
      if (absl::SimpleAtoi(*text, &level) && Normalise(info, level).ok())
        Add(flag, level, variable);
      else
        Warn(variable, flag, *text, "0");
      return;
    }
  }

  const std::map<std::string, std::string>& variables_;
  const NodeFacts& facts_;
  Environment environment_;
};

}  // namespace

Environment ParseEnvironment(const std::map<std::string, std::string>& variables,
                             const NodeFacts& facts) {
  return Parser(variables, facts).Parse();
}

}  // namespace backendd::node
