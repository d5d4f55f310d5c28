#include "server/node/workers/cpu_kernels.h"

#include <unistd.h>

#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace backendd::node {

CpuFeatures DetectCpu() {
  __builtin_cpu_init();
  CpuFeatures cpu;
  cpu.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  cpu.avx512 = cpu.avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq");
  cpu.avx512_bf16 = cpu.avx512 && __builtin_cpu_supports("avx512bf16");
  return cpu;
}

std::string CapabilityOf(const CpuFeatures& cpu) {
  return cpu.avx512 ? "AVX512" : cpu.avx2 ? "AVX2" : "DEFAULT";
}

Variables OwnEnvironment() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr) variables.emplace(std::string(*entry, equals - *entry), equals + 1);
  }
  return variables;
}

Variables WorkerEnvironment(const Variables& own, const CpuFeatures& cpu) {
  constexpr const char* kPrefixes[] = {"DNNL_", "ONEDNN_", "MKL_", "OPENBLAS_", "OMP_"};
  Variables result;
  for (const auto& [name, value] : own) {
    bool steers = absl::StartsWith(name, "BACKENDD_SERVER_");
    for (const char* prefix : kPrefixes) steers = steers || absl::StartsWith(name, prefix);
    if (!steers || name == "OPENBLAS_CORETYPE" || name == "DNNL_MAX_CPU_ISA") result[name] = value;
  }
  // At a barrier libgomp spins, for milliseconds when another process has the core.
  result["OMP_WAIT_POLICY"] = "passive";

  const auto found = own.find("ATEN_CPU_CAPABILITY");
  const std::string cap = found == own.end() ? "" : absl::AsciiStrToLower(found->second);
  if (cap == "default") {
    result["OPENBLAS_CORETYPE"] = "Prescott";
    result["DNNL_MAX_CPU_ISA"] = "SSE41";
  } else if (cap == "avx2" && cpu.avx2) {
    result["OPENBLAS_CORETYPE"] = "Haswell";
    result["DNNL_MAX_CPU_ISA"] = "AVX2";
  } else if (cpu.avx2) {  // an operator's own choice stands; emplace keeps it
    result.emplace("OPENBLAS_CORETYPE", cpu.avx512_bf16 ? "Cooperlake"
                                        : cpu.avx512    ? "SkylakeX"
                                                        : "Haswell");
  }
  return result;
}

}  // namespace backendd::node
