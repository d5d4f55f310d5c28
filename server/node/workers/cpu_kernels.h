// Which kernels the CPU's libraries shall use. OpenBLAS does not know newer CPUs and falls back to
// kernels that are many times slower, so the daemon says it before the worker starts.
#ifndef BACKENDD_SERVER_NODE_WORKERS_CPU_KERNELS_H_
#define BACKENDD_SERVER_NODE_WORKERS_CPU_KERNELS_H_

#include <map>
#include <string>

namespace backendd::node {

struct CpuFeatures {
  bool avx2 = false, avx512 = false, avx512_bf16 = false;
};
CpuFeatures DetectCpu();
std::string CapabilityOf(const CpuFeatures& cpu);  // as cpu.get_cpu_capability says it

using Variables = std::map<std::string, std::string>;
Variables OwnEnvironment();

// The daemon's variables without those that would steer the libraries behind the flags' back, and
// with those that pick kernels: by CPU, capped by ATEN_CPU_CAPABILITY. Pure.
Variables WorkerEnvironment(const Variables& own, const CpuFeatures& cpu);

}  // namespace backendd::node

#endif  // BACKENDD_SERVER_NODE_WORKERS_CPU_KERNELS_H_
