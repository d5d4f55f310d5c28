// Between cpu_device.cc and the files of kernels: what a build function is given, and what it
// makes. A plan of the CPU is a closure over its geometry; operands come with the call.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_KERNEL_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_KERNEL_H_

#include <complex>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/worker/device/device.h"
#include "shared/status/macros.h"

struct backendd_fftw_module;

namespace backendd::worker {

struct Call {
  absl::Span<const Address> operands;
  std::byte* workspace;
  Fault* fault;

  template <class T>
  T* At(int place) const {
    return static_cast<T*>(operands[place]);
  }
  template <class T>
  T* Work(uint64_t offset) const {
    return reinterpret_cast<T*>(workspace + offset);
  }
};
using Kernel = std::function<absl::Status(const Call&)>;

struct CpuPlan final : Plan {
  Kernel kernel;
};

// The ids of the flags that mean something here; looked up once.
struct CpuFlags {
  FlagId mkldnn_enabled, blas, fft, matmul_precision, conv_precision, deterministic, math_sdp;
};

// What all plans share; owned by the device, lives longer than them. Any thread.
struct CpuContext {
  CpuFlags flags;
  int threads = 1;
  bool bf16_instructions = false;
  std::string openblas_version, onednn_version;
  std::string module_path;
  const backendd_fftw_module* fftw = nullptr;  // null: the module is not there
  std::string fftw_missing;                    // why not
};

// One plan in the making. Lives on the stack of one BuildPlan.
class Builder {
 public:
  Builder(const CpuContext& cpu, const OperationSpec& spec, const FlagValues& flags,
          absl::Span<const uint8_t> alignment, CpuPlan* plan)
      : cpu(cpu), spec(spec), flags(flags), alignment(alignment), plan(*plan) {}

  const CpuContext& cpu;
  const OperationSpec& spec;
  const FlagValues& flags;
  const absl::Span<const uint8_t> alignment;
  CpuPlan& plan;

  const TensorType& type(int place) const { return spec.operands[place].type; }
  bool has(int place) const { return spec.operands[place].present; }
  template <class A>
  const A& attributes() const {
    return std::get<A>(spec.attributes);
  }
  // The offset of that many more bytes of the workspace.
  uint64_t Reserve(uint64_t bytes) {
    const uint64_t offset = plan.workspace_bytes;
    plan.workspace_bytes += (bytes + 63) / 64 * 64;
    return offset;
  }
  bool On(FlagId flag) const {
    const bool* value = std::get_if<bool>(&flags.Get(flag).value);
    return value == nullptr || *value;
  }
  std::string Text(FlagId flag) const {
    const std::string* value = std::get_if<std::string>(&flags.Get(flag).value);
    return value == nullptr ? "none" : *value;
  }
  // A request that somebody made (a layer above the built-in one) and that is not honoured.
  void Unmet(FlagId flag, FlagValue effective, absl::string_view reason, std::string detail) {
    const FlagState& state = flags.Get(flag);
    if (state.layer <= 1) return;
    plan.choice.unmet.push_back(
        {flag, state.value, std::move(effective), reason, std::move(detail)});
  }
  // A guess: 8 Gflop/s and 4 GB/s of one core.
  void Cost(double flops, double bytes) {
    plan.cost_us = 1 + flops / (8e3 * plan.choice.threads) + bytes / 4e3;
  }
};

using BuildFunction = absl::Status (*)(Builder&);
struct KernelRow {
  OpKind kind;
  BuildFunction build;
};

// One list per file.
absl::Span<const KernelRow> GemmKernels();
absl::Span<const KernelRow> ConvolutionKernels();
absl::Span<const KernelRow> ElementKernels();
absl::Span<const KernelRow> NormKernels();
absl::Span<const KernelRow> PoolingKernels();
absl::Span<const KernelRow> FftKernels();
absl::Span<const KernelRow> CopyKernels();
absl::Span<const KernelRow> AttentionKernels();
absl::Span<const KernelRow> LinalgKernels();  // inv solve cholesky lu det
absl::Span<const KernelRow> FactorKernels();  // qr eigh svd lstsq
absl::Span<const KernelRow> EinsumKernels();
absl::Span<const KernelRow> RecurrentKernels();  // rnn rnn_gradient
absl::Span<const KernelRow> QuantizedKernels();
absl::Span<const KernelRow> SparseKernels();
absl::Span<const KernelRow> GroupedKernels();

// f(float{}) or f(double{}) by the dtype; OP_UNSUPPORTED for any other.
template <class F>
absl::Status ByFloat(DType dtype, absl::string_view name, F&& f) {
  if (dtype == DType::kF32) return f(float{});
  if (dtype == DType::kF64) return f(double{});
  return Error(Reason::kOpUnsupported, absl::StrCat("operation '", name, "' is not offered for ",
                                                    Name(dtype), " on the CPU; allowed: f32, f64"));
}

// f(float{}) and so on, by the type of the first operand.
template <class F>
absl::Status ByNumber(Builder& b, F&& f) {
  switch (b.type(0).dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kC64:
      return f(std::complex<float>{});
    case DType::kC128:
      return f(std::complex<double>{});
    default:
      return Error(
          Reason::kOpUnsupported,
          absl::StrCat("operation '", KindName(b.spec.kind), "' is not offered for ",
                       Name(b.type(0).dtype), " on the CPU; allowed: f32, f64, c64, c128"));
  }
}

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_KERNEL_H_
