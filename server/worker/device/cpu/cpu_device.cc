#include "server/worker/device/cpu/cpu_device.h"

#include <cblas.h>
#include <dlfcn.h>
#include <lapacke.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "server/worker/device/cpu/fftw_module.h"
#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/onednn.h"
#include "server/worker/device/cpu/widen.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr int kKinds = 66;  // the highest field number of an operation, and one

class CpuSlot final : public Slot {};

// Owned by the worker; BuildPlan from any thread, all else from the executor's. Computes inline:
// what was run is done. Plans that outlive it are of no use, but harmless.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(CpuContext context) : context_(std::move(context)) {
    for (auto rows : {GemmKernels(), ConvolutionKernels(), ElementKernels(), NormKernels(),
                      PoolingKernels(), FftKernels(), CopyKernels(), AttentionKernels(),
                      LinalgKernels(), FactorKernels(), EinsumKernels(), RecurrentKernels(),
                      QuantizedKernels(), SparseKernels(), GroupedKernels()}) {
      for (const KernelRow& row : rows) rows_[row.kind] = &row;
    }
    const CpuFlags& f = context_.flags;
    gemm_f32_flags_ = {f.mkldnn_enabled, f.blas, f.matmul_precision, f.deterministic};
    gemm_flags_ = {f.mkldnn_enabled, f.blas, f.deterministic};
    conv_f32_flags_ = {f.mkldnn_enabled, f.conv_precision, f.deterministic};
    conv_flags_ = {f.mkldnn_enabled, f.deterministic};
    fft_flags_ = {f.fft};
    for (auto [from, to] : {std::pair(&gemm_flags_, &einsum_flags_),
                            std::pair(&gemm_f32_flags_, &einsum_f32_flags_)}) {
      *to = *from;
      to->push_back(FlagIdOf("opt_einsum.enabled"));
      to->push_back(FlagIdOf("opt_einsum.strategy"));
    }
    quantized_flags_ = {FlagIdOf("quantized.engine")};
    sdpa_flags_ = {f.math_sdp};
    Describe();
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<Slab> MapSlab(SlabKind kind, uint64_t bytes) override {
    if (bytes == 0) return Slab{nullptr, 0, kind};
    void* const address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      return Error(Reason::kDeviceOutOfMemory,
                   absl::StrCat("the CPU has no ", bytes, " bytes more: ", strerror(errno)));
    }
    return Slab{address, bytes, kind};
  }

  void UnmapSlab(const Slab& slab) override {
    if (slab.address == nullptr) return;
    const uint64_t page = sysconf(_SC_PAGESIZE);
    const uint64_t into = reinterpret_cast<uintptr_t>(slab.address) % page;
    munmap(static_cast<std::byte*>(slab.address) - into, slab.bytes + into);
  }

  absl::StatusOr<Slab> Import(const Fd& memfd, uint64_t offset, uint64_t bytes,
                              bool writable) override {
    if (bytes == 0) return Slab{nullptr, 0, SlabKind::kPinnedHost};
    const uint64_t into = offset % sysconf(_SC_PAGESIZE);
    void* const address = mmap(nullptr, bytes + into, PROT_READ | (writable ? PROT_WRITE : 0),
                               MAP_SHARED, memfd.get(), static_cast<off_t>(offset - into));
    if (address == MAP_FAILED) {
      return Error(Reason::kHostOutOfMemory,
                   absl::StrCat("cannot map ", bytes, " bytes: ", strerror(errno)));
    }
    return Slab{static_cast<std::byte*>(address) + into, bytes, SlabKind::kPinnedHost};
  }

  absl::Span<const FlagId> Governing(const OperationSpec& operation) const override {
    const bool single =
        !operation.operands.empty() && operation.operands[0].type.dtype == DType::kF32;
    switch (operation.kind) {
      case OpKind::kEinsum:
        return single ? einsum_f32_flags_ : einsum_flags_;
      case OpKind::kQuantizedLinear:
        return quantized_flags_;
      case OpKind::kGemm:
      case OpKind::kGroupedGemm:
      case OpKind::kRnn:
      case OpKind::kRnnGradient:
      case OpKind::kSparse24Matmul:
        return single ? gemm_f32_flags_ : gemm_flags_;
      case OpKind::kConvolutionForward:
      case OpKind::kConvolutionInputGradient:
      case OpKind::kConvolutionWeightGradient:
        return single ? conv_f32_flags_ : conv_flags_;
      case OpKind::kFft:
        return fft_flags_;
      case OpKind::kSdpa:
      case OpKind::kSdpaGradient:
        return sdpa_flags_;
      default:
        return {};
    }
  }

  absl::StatusOr<std::unique_ptr<Plan>> BuildPlan(const OperationSpec& operation,
                                                  const FlagValues& flags,
                                                  absl::Span<const uint8_t> alignment) override {
    const int kind = static_cast<int>(operation.kind);
    const KernelRow* const row = kind > 0 && kind < kKinds ? rows_[kind] : nullptr;
    if (row == nullptr) {
      return Error(
          Reason::kOpUnsupported,
          absl::StrCat("operation '", KindName(operation.kind), "' is not offered on the CPU"),
          {{"operation", Str(KindName(operation.kind))}, {"device", "cpu"}});
    }
    auto plan = std::make_unique<CpuPlan>();
    const auto governing = Governing(operation);
    plan->choice.governing.assign(governing.begin(), governing.end());
    plan->host_bytes = 1024;
    Builder builder(context_, operation, flags, alignment, plan.get());
    RETURN_IF_ERROR(BuildRow(builder, *row));
    return plan;
  }

  absl::StatusOr<Slot*> OpenSlot() override { return &slot_; }

  absl::Status Run(Slot&, const Plan& plan, absl::Span<const Address> operands, Address workspace,
                   Fault* fault) override {
    return static_cast<const CpuPlan&>(plan).kernel(
        {operands, static_cast<std::byte*>(workspace), fault});
  }

  absl::Status Copy(Slot&, Address to, const void* from, uint64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(Slot&, void* to, Address from, uint64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status Zero(Slot&, Address address, uint64_t bytes) override {
    if (bytes > 0) std::memset(address, 0, bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<Event> Record(Slot&) override { return Event{++events_}; }
  Progress Poll(const Event&) override { return Progress::kDone; }
  absl::Status CheckHealth() override { return absl::OkStatus(); }

 private:
  void Describe() {
    info_.uuid = "cpu";
    info_.name = "CPU";
    __builtin_cpu_init();
    info_.isa = __builtin_cpu_supports("avx512f") ? "AVX512"
                : __builtin_cpu_supports("avx2")  ? "AVX2"
                                                  : "DEFAULT";
    info_.blas_core = openblas_get_corename();
    info_.memory_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    info_.threads = context_.threads;
    info_.libraries = {{"onednn", context_.onednn_version},
                       {"openblas", context_.openblas_version}};
    if (context_.fftw != nullptr) info_.libraries["fftw"] = context_.fftw->version;
  }

  const CpuContext context_;
  std::array<const KernelRow*, kKinds> rows_{};
  std::vector<FlagId> einsum_f32_flags_, einsum_flags_, quantized_flags_;
  std::vector<FlagId> gemm_f32_flags_, gemm_flags_, conv_f32_flags_, conv_flags_, fft_flags_,
      sdpa_flags_;
  DeviceInfo info_;
  CpuSlot slot_;
  uint64_t events_ = 0;
};

int UsableCores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string OwnFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, length > 0 ? length : 0);
  return whole.substr(0, whole.rfind('/'));
}

// The module stays open: plans may outlive the device.
const backendd_fftw_module* OpenFftw(const std::string& path, std::string* why_not) {
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    *why_not = dlerror();
    return nullptr;
  }
  using Open = const backendd_fftw_module* (*)();
  const auto open = reinterpret_cast<Open>(dlsym(handle, "backendd_fftw_open"));
  const backendd_fftw_module* const module = open == nullptr ? nullptr : open();
  if (module == nullptr || module->abi != BACKENDD_FFTW_ABI) {
    *why_not = absl::StrCat(path, " has another interface version");
    return nullptr;
  }
  return module;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(CpuOptions options) {
  if (options.threads < 0) {
    return Error(Reason::kArgumentInvalid,
                 absl::StrCat("threads is ", options.threads, "; allowed: 0 or more"));
  }
  CpuContext context;
  context.flags = {FlagIdOf("mkldnn.enabled"),
                   FlagIdOf("cpu.preferred_blas_library"),
                   FlagIdOf("cpu.preferred_fft_library"),
                   FlagIdOf("mkldnn.matmul.fp32_precision"),
                   FlagIdOf("mkldnn.conv.fp32_precision"),
                   FlagIdOf("mkldnn.deterministic"),
                   FlagIdOf("cuda.math_sdp_enabled")};
  context.threads = options.threads > 0 ? options.threads : UsableCores();
  openblas_set_num_threads(context.threads);
  LAPACKE_set_nancheck(0);
  onednn::DisableCache();
  context.bf16_instructions = onednn::HasBf16();
  context.onednn_version = onednn::Version();
  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ..."
  const std::string config = openblas_get_config();
  const size_t space = config.find(' ');
  context.openblas_version =
      space == std::string::npos
          ? config
          : config.substr(space + 1, config.find(' ', space + 1) - space - 1);
  const std::string folder = options.module_dir.empty() ? OwnFolder() : options.module_dir;
  context.fftw = OpenFftw(folder + "/backendd-module-fftw.so", &context.fftw_missing);
  return std::make_unique<CpuDevice>(std::move(context));
}

}  // namespace backendd::worker
