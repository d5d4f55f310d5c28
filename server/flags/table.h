// The catalogue's data: one row a flag. Included by catalogue.cc alone.
#ifndef BACKENDD_SERVER_FLAGS_TABLE_H_
#define BACKENDD_SERVER_FLAGS_TABLE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "server/flags/catalogue.h"

namespace backendd {

using Words = absl::string_view;  // several, with blanks between

// Where a field is not given, it is that of a switch: true or false, written at any scope, read and
// written, binding with the next program. "<dsl>" in a name makes a row for each of kDsls.
struct FlagRow {
  absl::string_view name;
  absl::string_view torch = "";
  Words types = "bool";
  Words allowed = "";               // "hipblas=cublas": another spelling
  absl::string_view standard = "";  // the default as text; empty: see note
  absl::string_view note = "";
  Words environment = "";
  FlagAccess access = FlagAccess::kReadWrite;
  FlagBinding binding = FlagBinding::kNextProgram;
  std::optional<int64_t> min = std::nullopt;
  std::optional<int64_t> max = std::nullopt;
  FlagCombine combine = FlagCombine::kHighest;
  absl::string_view replaced_by = "";
  absl::string_view needs = "";
  absl::string_view honoured_by = "";
  absl::string_view summary = "";
  Words arguments = "";
  bool over_tensors = false;
  bool live = false;
  bool shared_state = false;  // one for all sessions of a device: no private values
};

inline constexpr absl::string_view kDsls[] = {"cutedsl", "flydsl", "helion", "triton"};

inline constexpr auto kRead = FlagAccess::kReadOnly;
inline constexpr auto kConst = FlagAccess::kConstant;
inline constexpr auto kAct = FlagAccess::kAction;
inline constexpr auto kOnce = FlagBinding::kAtOnce;

// clang-format off
inline constexpr FlagRow kFlagTable[] = {
  // The package.
  {.name = "fp32_precision", .types = "text none", .allowed = "none ieee tf32 bf16", .standard = "none",
   .honoured_by = "every f32 operation whose back end and operation say none",
   .summary = "Root of the fp32 precision tree: what every back end that says none uses."},
  {.name = "flags", .torch = "flags(fp32_precision=\"none\")", .types = "", .access = kAct,
   .summary = "A scope of torch; here a lease on fp32_precision."},
  {.name = "set_flags", .torch = "set_flags(_fp32_precision=\"none\")", .types = "", .access = kAct,
   .summary = "A batch write of torch; here one SetFlags request."},
  {.name = "flags_frozen", .torch = "flags_frozen()", .standard = "false", .access = kRead,
   .summary = "Whether direct writes are refused."},
  {.name = "disable_global_flags", .torch = "disable_global_flags()", .types = "", .access = kAct,
   .summary = "Freezes direct writes in torch; leases work as ever."},

  // CPU.
  {.name = "cpu.get_cpu_capability", .torch = "cpu.get_cpu_capability()", .types = "text",
   .allowed = "DEFAULT AVX2 AVX512", .note = "best of the CPU", .environment = "ATEN_CPU_CAPABILITY",
   .access = kRead, .binding = FlagBinding::kWorkerStart,
   .summary = "The kernels that the CPU worker runs; capped by the environment."},
  {.name = "cpu.preferred_blas_library", .torch = "none: a flag of backendd", .types = "text",
   .allowed = "default onednn openblas mkl", .standard = "default", .honoured_by = "gemm, linalg on the CPU; mkl: NOT_BUILT",
   .summary = "Which library multiplies matrices on the CPU."},
  {.name = "cpu.preferred_fft_library", .torch = "none: a flag of backendd", .types = "text",
   .allowed = "default fftw mkl native", .standard = "default", .honoured_by = "fft on the CPU; mkl: NOT_BUILT",
   .summary = "Which library transforms on the CPU."},

  // CUDA.
  {.name = "cuda.is_built", .torch = "cuda.is_built()", .note = "of the build", .access = kRead,
   .summary = "Whether this node has a CUDA worker."},
  {.name = "cuda.matmul.allow_tf32", .note = "reads what cuda.matmul.fp32_precision computes",
   .environment = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", .replaced_by = "cuda.matmul.fp32_precision",
   .honoured_by = "f32 gemm, grouped, einsum, mha on CUDA",
   .summary = "Legacy name: matmul is tf32. A write expands into cuda.matmul.fp32_precision."},
  {.name = "cuda.matmul.fp32_precision", .types = "text none", .allowed = "none ieee tf32", .standard = "none",
   .environment = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", .honoured_by = "f32 gemm, grouped, einsum, mha on CUDA; below SM 8.0: HARDWARE",
   .summary = "Precision of fp32 matrix products on CUDA; none asks cudnn.fp32_precision."},
  {.name = "cuda.matmul.allow_fp16_reduced_precision_reduction", .types = "bool pair", .standard = "true",
   .honoured_by = "f16 gemm on CUDA; the CPU sums in f32",
   .summary = "Reduced precision, and with a pair split-K, in fp16 sums; (true, false) is no choice."},
  {.name = "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
   .note = "follows cuda.matmul.allow_fp16_reduced_precision_reduction", .access = kRead,
   .summary = "Whether split-K may be used in fp16 sums."},
  {.name = "cuda.matmul.allow_bf16_reduced_precision_reduction", .types = "bool pair", .standard = "true",
   .honoured_by = "bf16 gemm on CUDA; the CPU sums in f32",
   .summary = "Reduced precision, and with a pair split-K, in bf16 sums; (true, false) is no choice."},
  {.name = "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
   .note = "follows cuda.matmul.allow_bf16_reduced_precision_reduction", .access = kRead,
   .summary = "Whether split-K may be used in bf16 sums."},
  {.name = "cuda.matmul.allow_fp16_accumulation", .standard = "false", .honoured_by = "f16 gemm on CUDA from SM 7.0",
   .summary = "16-bit sums in fp16 matrix products."},
  {.name = "cuda.matmul.prefer_cublaslt_grouped_gemm", .standard = "false",
   .honoured_by = "bf16 grouped on CUDA 13.3 or newer, SM 9 to 11; else LIBRARY_VERSION, HARDWARE",
   .summary = "cuBLASLt for grouped bf16 matrix products."},
  {.name = "cuda.cufft_plan_cache", .torch = "cuda.cufft_plan_cache[i]", .types = "list", .note = "the devices that have a cache", .access = kRead,
   .summary = "Selects a device's FFT plan cache; a request names the device itself."},
  {.name = "cuda.cufft_plan_cache.size", .torch = "cuda.cufft_plan_cache[i].size", .types = "int", .standard = "0", .access = kRead,
   .needs = "that device", .summary = "Plans in the device's FFT plan cache now.", .live = true},
  {.name = "cuda.cufft_plan_cache.max_size", .torch = "cuda.cufft_plan_cache[i].max_size", .types = "int", .standard = "4096",
   .binding = kOnce, .min = 0, .needs = "that device", .honoured_by = "fft, on every device, cpu included",
   .summary = "Most plans that the device's FFT plan cache keeps; 0: none.", .shared_state = true},
  {.name = "cuda.cufft_plan_cache.clear", .torch = "cuda.cufft_plan_cache[i].clear()", .types = "", .access = kAct,
   .summary = "Empties the device's FFT plan cache; here a call of DeviceService."},
  {.name = "cuda.preferred_blas_library", .torch = "cuda.preferred_blas_library(backend=None)", .types = "text",
   .allowed = "cublas cublaslt ck default=cublas hipblas=cublas hipblaslt=cublaslt", .standard = "cublas",
   .environment = "TORCH_BLAS_PREFER_CUBLASLT TORCH_BLAS_PREFER_HIPBLASLT",
   .honoured_by = "gemm on CUDA; cublaslt, none fits: SHAPE; ck: NOT_BUILT",
   .summary = "Which library multiplies matrices on CUDA; default reads cublas."},
  {.name = "cuda.preferred_linalg_library", .torch = "cuda.preferred_linalg_library(backend=None)", .types = "text",
   .allowed = "default cusolver magma", .standard = "default",
   .environment = "TORCH_LINALG_PREFER_CUSOLVER TORCH_LINALG_PREFER_HIPSOLVER",
   .honoured_by = "linalg on CUDA; magma: NOT_BUILT", .summary = "Which library factors and solves on CUDA."},
  {.name = "cuda.preferred_rocm_fa_library", .torch = "cuda.preferred_rocm_fa_library(backend=None)", .types = "text",
   .allowed = "default aotriton ck", .standard = "default", .environment = "TORCH_ROCM_FA_PREFER_CK",
   .honoured_by = "nothing: NOT_BUILT", .summary = "Which library runs flash attention on ROCm."},
  {.name = "cuda.cublas_workspace_size", .torch = "cuda.cublas_workspace_size(size=None)", .types = "int text",
   .note = "by the device's capability: 32 MiB for SM 9, 10 and 12, else 8320 KiB", .environment = "CUBLAS_WORKSPACE_CONFIG",
   .min = 0, .honoured_by = "gemm on CUDA",
   .summary = "Workspace of cuBLAS in bytes; may be written as :KiB:count text."},
  {.name = "cuda.cublaslt_workspace_size", .torch = "cuda.cublaslt_workspace_size(size=None)", .types = "int", .standard = "1048576",
   .environment = "CUBLASLT_WORKSPACE_SIZE", .min = 0, .honoured_by = "gemm through cuBLASLt",
   .summary = "Workspace of cuBLASLt in bytes."},
  {.name = "cuda.blas_workspace_size", .torch = "cuda.blas_workspace_size(size=None, backend=None)", .types = "int text",
   .note = "of the preferred library", .environment = "CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE", .min = 0,
   .honoured_by = "gemm on CUDA",
   .summary = "Workspace of the library that cuda.preferred_blas_library names; a write is one of that library's flag."},
  {.name = "cuda.is_ck_sdpa_available", .torch = "cuda.is_ck_sdpa_available()", .note = "of the build", .access = kRead,
   .summary = "Whether CK attention is built."},
  {.name = "cuda.flash_sdp_enabled", .torch = "cuda.flash_sdp_enabled(), enable_flash_sdp(b)", .standard = "true", .honoured_by = "sdpa, mha",
   .summary = "Flash attention may be chosen."},
  {.name = "cuda.mem_efficient_sdp_enabled", .torch = "cuda.mem_efficient_sdp_enabled(), enable_mem_efficient_sdp(b)", .standard = "true",
   .honoured_by = "sdpa, mha on CUDA", .summary = "Memory-efficient attention may be chosen."},
  {.name = "cuda.math_sdp_enabled", .torch = "cuda.math_sdp_enabled(), enable_math_sdp(b)", .standard = "true", .honoured_by = "sdpa, mha",
   .summary = "Attention from plain matrix products may be chosen."},
  {.name = "cuda.cudnn_sdp_enabled", .torch = "cuda.cudnn_sdp_enabled(), enable_cudnn_sdp(b)", .standard = "true",
   .honoured_by = "sdpa, mha on CUDA", .summary = "cuDNN's attention may be chosen."},
  {.name = "cuda.fp16_bf16_reduction_math_sdp_allowed",
   .torch = "cuda.fp16_bf16_reduction_math_sdp_allowed(), allow_fp16_bf16_reduction_math_sdp(b)", .standard = "false",
   .honoured_by = "16-bit math sdpa on CUDA; the CPU computes in f32", .summary = "16-bit scores and softmax in math attention."},
  {.name = "cuda.is_flash_attention_available", .torch = "cuda.is_flash_attention_available()", .note = "of the build", .access = kRead,
   .summary = "Whether flash attention for CUDA is built."},
  {.name = "cuda.can_use_flash_attention", .torch = "cuda.can_use_flash_attention(params, debug=False)", .note = "by the operands", .access = kRead,
   .summary = "Whether flash attention takes these operands.", .arguments = "params", .over_tensors = true},
  {.name = "cuda.can_use_efficient_attention", .torch = "cuda.can_use_efficient_attention(params, debug=False)", .note = "by the operands",
   .access = kRead, .summary = "Whether memory-efficient attention takes these operands.", .arguments = "params", .over_tensors = true},
  {.name = "cuda.can_use_cudnn_attention", .torch = "cuda.can_use_cudnn_attention(params, debug=False)", .note = "by the operands",
   .access = kRead, .summary = "Whether cuDNN's attention takes these operands.", .arguments = "params", .over_tensors = true},
  {.name = "cuda.SDPAParams", .torch = "class SDPAParams", .types = "", .access = kConst,
   .summary = "The operands that the three queries look at; here a message of the request."},
  {.name = "cuda.sdp_kernel", .torch = "cuda.sdp_kernel(enable_flash=True, ...)", .types = "", .access = kAct,
   .replaced_by = "a lease on the four switches", .summary = "A deprecated scope of torch."},
  {.name = "cuda.sdp_priority_order", .torch = "torch.nn.attention.sdpa_kernel(..., set_priority=True)", .types = "list",
   .allowed = "flash efficient math cudnn overrideable", .standard = "flash efficient math cudnn overrideable",
   .note = "cudnn first on SM 9.0, 10.0 and 10.3 with cuDNN newer than 9.15.0", .environment = "TORCH_CUDNN_SDPA_DEPRIORITIZED",
   .honoured_by = "sdpa, mha; the order of flash and math on the CPU", .summary = "In which order attention kernels are tried; always all five."},
  {.name = "cuda.overrideable_sdp_enabled", .torch = "_get_overrideable_sdp_enabled()", .standard = "true", .honoured_by = "nothing: NOT_BUILT",
   .summary = "Attention of an out-of-tree device may be chosen."},

  // cuDNN.
  {.name = "cudnn.enabled", .standard = "true", .honoured_by = "conv, rnn on CUDA", .summary = "cuDNN may be used."},
  {.name = "cudnn.deterministic", .standard = "false", .honoured_by = "conv, rnn on CUDA; the CPU always is",
   .summary = "Only algorithms that give the same bits again."},
  {.name = "cudnn.benchmark", .standard = "false", .honoured_by = "conv", .summary = "Times the algorithms of a convolution and keeps the fastest."},
  {.name = "cudnn.benchmark_limit", .types = "int", .standard = "10", .min = 0, .honoured_by = "conv",
   .summary = "How many algorithms are timed; 0: all."},
  {.name = "cudnn.allow_tf32", .note = "reads what cudnn.conv and cudnn.rnn compute",
   .replaced_by = "cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision", .honoured_by = "f32 conv, rnn on CUDA",
   .summary = "Legacy name: convolutions or RNNs are tf32. A write expands into both leaves."},
  {.name = "cudnn.fp32_precision", .types = "text none", .allowed = "none ieee tf32", .standard = "none",
   .honoured_by = "f32 gemm, conv, rnn on CUDA whose own entry says none",
   .summary = "Precision of the whole CUDA back end; none asks fp32_precision."},
  {.name = "cudnn.conv.fp32_precision", .types = "text none", .allowed = "none ieee tf32", .standard = "tf32",
   .honoured_by = "f32 conv on CUDA; below SM 8.0: HARDWARE",
   .summary = "Precision of fp32 convolutions on CUDA; its tf32 yields to any parent that is set."},
  {.name = "cudnn.rnn.fp32_precision", .types = "text none", .allowed = "none ieee tf32", .standard = "tf32",
   .honoured_by = "f32 rnn on CUDA; below SM 8.0: HARDWARE",
   .summary = "Precision of fp32 RNNs on CUDA; its tf32 yields to any parent that is set."},
  {.name = "cudnn.depthwise_kernel", .types = "text", .allowed = "auto cudnn native", .standard = "auto", .honoured_by = "depthwise conv on CUDA",
   .summary = "Which kernel runs depthwise convolutions."},
  {.name = "cudnn.is_available", .torch = "cudnn.is_available()", .note = "of the build", .access = kRead, .summary = "Whether cuDNN is there."},
  {.name = "cudnn.version", .torch = "cudnn.version()", .types = "int none", .note = "of the library", .access = kRead, .summary = "cuDNN's version."},
  {.name = "cudnn.is_acceptable", .torch = "cudnn.is_acceptable(tensor)", .note = "by the operand", .access = kRead,
   .summary = "Whether cuDNN takes this operand.", .arguments = "tensor", .over_tensors = true},
  {.name = "cudnn.flags", .torch = "cudnn.flags(enabled=False, ...)", .types = "", .access = kAct,
   .summary = "A scope of torch; here a lease on the flags it names, and no others."},
  {.name = "cudnn.set_flags", .torch = "cudnn.set_flags(_enabled=None, ...)", .types = "", .access = kAct,
   .summary = "A batch write of torch; here one SetFlags request."},
  {.name = "cudnn.CUDNN_TENSOR_DTYPES", .types = "list", .standard = "float16 float32 float64", .access = kConst,
   .summary = "Element types that cudnn.is_acceptable knows."},

  // Small back ends.
  {.name = "cusparselt.is_available", .torch = "cusparselt.is_available()", .note = "of the build", .access = kRead,
   .summary = "Whether cuSPARSELt is there."},
  {.name = "cusparselt.version", .torch = "cusparselt.version()", .types = "int none", .note = "of the library", .access = kRead,
   .summary = "cuSPARSELt's version."},
  {.name = "cusparselt.get_max_alg_id", .torch = "cusparselt.get_max_alg_id()", .types = "int none", .note = "by the library's version",
   .access = kRead, .summary = "Highest algorithm id of cuSPARSELt."},
  {.name = "kleidiai.is_available", .torch = "kleidiai.is_available()", .note = "of the build", .access = kRead,
   .summary = "Whether KleidiAI is there."},
  {.name = "mha.fastpath_enabled", .torch = "mha.get_fastpath_enabled(), set_fastpath_enabled(v)", .standard = "true",
   .honoured_by = "mha", .summary = "One packed product for query, key and value where the operands allow it."},
  {.name = "miopen.immediate", .standard = "false", .honoured_by = "nothing: NOT_BUILT", .summary = "MIOpen's immediate mode."},
  {.name = "miopen.flags", .torch = "miopen.flags(immediate=False)", .types = "", .access = kAct, .summary = "A scope of torch; here a lease on miopen.immediate."},
  {.name = "miopen.set_flags", .torch = "miopen.set_flags(_immediate=None)", .types = "", .access = kAct, .summary = "A batch write of torch; here one SetFlags request."},
  {.name = "mkl.is_available", .torch = "mkl.is_available()", .note = "of the build", .access = kRead, .summary = "Whether oneMKL is there."},
  {.name = "mkl.verbose", .torch = "mkl.verbose(enable)", .types = "int", .standard = "0", .environment = "MKL_VERBOSE", .binding = kOnce,
   .min = 0, .max = 1, .honoured_by = "oneMKL; NOT_BUILT", .summary = "oneMKL's log level."},
  {.name = "mkl.VERBOSE_OFF", .types = "int", .standard = "0", .access = kConst, .summary = "A level of mkl.verbose."},
  {.name = "mkl.VERBOSE_ON", .types = "int", .standard = "1", .access = kConst, .summary = "A level of mkl.verbose."},
  {.name = "mkldnn.is_available", .torch = "mkldnn.is_available()", .note = "of the build", .access = kRead, .summary = "Whether oneDNN is there."},
  {.name = "mkldnn.is_acl_available", .torch = "mkldnn.is_acl_available()", .note = "of the build", .access = kRead,
   .summary = "Whether oneDNN is built with the Arm Compute Library."},
  {.name = "mkldnn.verbose", .torch = "mkldnn.verbose(level)", .types = "int", .standard = "0", .environment = "ONEDNN_VERBOSE DNNL_VERBOSE",
   .binding = kOnce, .min = 0, .max = 2, .honoured_by = "oneDNN", .summary = "oneDNN's log level."},
  {.name = "mkldnn.VERBOSE_OFF", .types = "int", .standard = "0", .access = kConst, .summary = "A level of mkldnn.verbose."},
  {.name = "mkldnn.VERBOSE_ON", .types = "int", .standard = "1", .access = kConst, .summary = "A level of mkldnn.verbose."},
  {.name = "mkldnn.VERBOSE_ON_CREATION", .types = "int", .standard = "2", .access = kConst, .summary = "A level of mkldnn.verbose."},
  {.name = "mkldnn.enabled", .standard = "true", .honoured_by = "gemm, conv, rnn, qlinear on the CPU",
   .summary = "oneDNN may be used; false: OpenBLAS and kernels of our own."},
  {.name = "mkldnn.deterministic", .standard = "false", .honoured_by = "conv, rnn, gemm on the CPU, which always are",
   .summary = "Only algorithms that give the same bits again."},
  {.name = "mkldnn.allow_tf32", .note = "unavailable without XPU", .replaced_by = "mkldnn.matmul.fp32_precision, mkldnn.conv.fp32_precision",
   .needs = "XPU", .summary = "Legacy name: tf32 on Intel GPUs."},
  {.name = "mkldnn.fp32_precision", .types = "text none", .allowed = "none ieee tf32 bf16", .standard = "none",
   .honoured_by = "f32 gemm, conv, rnn on the CPU whose own entry says none",
   .summary = "Precision of the whole oneDNN back end; none asks fp32_precision."},
  {.name = "mkldnn.matmul.fp32_precision", .types = "text none", .allowed = "none ieee tf32 bf16", .standard = "none",
   .honoured_by = "f32 gemm, einsum, mha on the CPU; bf16 without bf16 instructions, tf32: HARDWARE",
   .summary = "Precision of fp32 matrix products in oneDNN; none asks mkldnn.fp32_precision."},
  {.name = "mkldnn.conv.fp32_precision", .types = "text none", .allowed = "none ieee tf32 bf16", .standard = "none",
   .honoured_by = "f32 conv on the CPU; bf16 without bf16 instructions, tf32: HARDWARE",
   .summary = "Precision of fp32 convolutions in oneDNN; none asks mkldnn.fp32_precision."},
  {.name = "mkldnn.rnn.fp32_precision", .types = "text none", .allowed = "none ieee tf32 bf16", .standard = "none",
   .honoured_by = "f32 rnn on the CPU; bf16 without bf16 instructions, tf32: HARDWARE",
   .summary = "Precision of fp32 RNNs in oneDNN; none asks mkldnn.fp32_precision."},
  {.name = "mkldnn.flags", .torch = "mkldnn.flags(enabled=False, ...)", .types = "", .access = kAct,
   .summary = "A scope of torch; here a lease on the flags it names, and no others."},
  {.name = "mkldnn.set_flags", .torch = "mkldnn.set_flags(_enabled=None, ...)", .types = "", .access = kAct, .summary = "A batch write of torch; here one SetFlags request."},
  {.name = "mps.is_built", .torch = "mps.is_built()", .note = "of the build", .access = kRead, .summary = "Whether Metal is built."},
  {.name = "mps.is_available", .torch = "mps.is_available()", .note = "of the machine", .access = kRead, .summary = "Whether Metal works here."},
  {.name = "mps.is_macos_or_newer", .torch = "mps.is_macos_or_newer(major, minor)", .note = "of the machine", .access = kRead, .needs = "MPS",
   .summary = "Whether macOS is that version or newer.", .arguments = "major minor"},
  {.name = "mps.is_macos13_or_newer", .torch = "mps.is_macos13_or_newer(minor=0)", .note = "of the machine", .access = kRead, .needs = "MPS",
   .summary = "Whether macOS is 13.minor or newer.", .arguments = "minor"},
  {.name = "mps.get_name", .torch = "mps.get_name()", .types = "text", .note = "of the machine", .access = kRead, .needs = "MPS",
   .summary = "The Metal device's name."},
  {.name = "mps.get_core_count", .torch = "mps.get_core_count()", .types = "int", .note = "of the machine", .access = kRead, .needs = "MPS",
   .summary = "The Metal device's cores."},
  {.name = "nnpack.is_available", .torch = "nnpack.is_available()", .note = "of CPU and build", .access = kRead, .summary = "Whether NNPACK is there."},
  {.name = "nnpack.enabled", .torch = "nnpack.set_flags(_enabled)", .standard = "true", .honoured_by = "nothing: NOT_BUILT",
   .summary = "NNPACK may be used."},
  {.name = "nnpack.flags", .torch = "nnpack.flags(enabled=False)", .types = "", .access = kAct, .summary = "A scope of torch; here a lease on nnpack.enabled."},
  {.name = "nnpack.set_flags", .torch = "nnpack.set_flags(_enabled)", .types = "", .access = kAct, .summary = "A batch write of torch; here one SetFlags request."},
  {.name = "openmp.is_available", .torch = "openmp.is_available()", .note = "of the build", .access = kRead, .summary = "Whether kernels run on OpenMP threads."},
  {.name = "opt_einsum.is_available", .torch = "opt_einsum.is_available()", .note = "planner present", .access = kRead,
   .summary = "Whether contractions are planned."},
  {.name = "opt_einsum.get_opt_einsum", .torch = "opt_einsum.get_opt_einsum()", .types = "text none", .note = "planner present", .access = kRead,
   .summary = "The planner's name."},
  {.name = "opt_einsum.enabled", .standard = "true", .needs = "a planner", .honoured_by = "einsum of 3 operands or more",
   .summary = "Contractions are planned, not taken left to right."},
  {.name = "opt_einsum.strategy", .types = "text", .allowed = "auto greedy optimal", .standard = "auto", .needs = "a planner",
   .honoured_by = "einsum of 3 operands or more; optimal above 14: SHAPE", .summary = "How contractions are planned; needs opt_einsum.enabled."},
  {.name = "opt_einsum.flags", .torch = "opt_einsum.flags(enabled=None, strategy=None)", .types = "", .access = kAct, .summary = "A scope of torch; here a lease on the flags it names."},
  {.name = "opt_einsum.set_flags", .torch = "opt_einsum.set_flags(_enabled=None, _strategy=None)", .types = "", .access = kAct, .summary = "A batch write of torch; here one SetFlags request."},

  // Kernel providers.
  {.name = "python_native.available_dsls", .types = "list", .note = "of the machine", .access = kRead, .summary = "Kernel providers that work here."},
  {.name = "python_native.all_dsls", .types = "list", .standard = "cutedsl flydsl helion triton", .access = kConst, .summary = "Kernel providers by name."},
  {.name = "python_native.get_dsl_operations", .torch = "python_native.get_dsl_operations(name)", .types = "list", .note = "of the provider",
   .access = kRead, .summary = "Operations that a provider registers, sorted.", .arguments = "name"},
  {.name = "python_native.disabled_operations", .torch = "python_native.disable_operations(*ops), enable_operations(*ops)", .types = "list",
   .standard = "", .combine = FlagCombine::kUnion, .honoured_by = "every operation that a provider registers",
   .summary = "Operations whose provided kernels are off; the names of all layers add up."},
  {.name = "python_native.disabled_dispatch_keys", .torch = "python_native.disable_dispatch_keys(*k), enable_dispatch_keys(*k)", .types = "list",
   .standard = "", .combine = FlagCombine::kUnion, .honoured_by = "every operation that a provider registers",
   .summary = "Dispatch keys whose provided kernels are off; the names of all layers add up."},
  {.name = "python_native.operations_disabled", .torch = "python_native.operations_disabled(*ops)", .types = "", .access = kAct,
   .summary = "A scope of torch; here a lease on python_native.disabled_operations."},
  {.name = "python_native.is_operation_disabled", .torch = "python_native.is_operation_disabled(op)", .note = "by the filter", .access = kRead,
   .summary = "Whether the operation is in python_native.disabled_operations.", .arguments = "op"},
  {.name = "python_native.is_dsl_disabled", .torch = "python_native.is_dsl_disabled(name)", .note = "by the filter", .access = kRead,
   .summary = "Whether the provider is switched off.", .arguments = "name"},
  {.name = "python_native.<dsl>.name", .types = "text", .standard = "<dsl>", .access = kConst, .summary = "The provider's name."},
  {.name = "python_native.<dsl>.available", .note = "of the machine", .access = kRead, .summary = "Whether the provider works here."},
  {.name = "python_native.<dsl>.version", .types = "text none", .note = "of the library", .access = kRead, .summary = "The provider's version."},
  {.name = "python_native.helion.backend", .types = "text", .standard = "triton", .access = kRead, .summary = "What helion compiles with."},
  {.name = "python_native.<dsl>.enabled", .standard = "true", .combine = FlagCombine::kAllTrue, .honoured_by = "every operation that the provider registers",
   .summary = "The provider's kernels may run; off while any layer says off."},
  {.name = "python_native.<dsl>.disable", .torch = "python_native.<dsl>.disable()", .types = "", .access = kAct, .summary = "An act of torch; here a write of python_native.<dsl>.enabled."},
  {.name = "python_native.<dsl>.enable", .torch = "python_native.<dsl>.enable()", .types = "", .access = kAct, .summary = "An act of torch; here a write of python_native.<dsl>.enabled."},
  {.name = "python_native.<dsl>.disabled", .torch = "python_native.<dsl>.disabled()", .types = "", .access = kAct, .summary = "A scope of torch; here a lease on python_native.<dsl>.enabled."},
  {.name = "python_native.aot_enabled", .torch = "torch._native.aot_enabled(), set_aot_enabled(b)", .standard = "true",
   .environment = "TORCH_DISABLE_NATIVE_AOT", .honoured_by = "kernels compiled ahead of time", .summary = "Kernels compiled ahead of time may run."},

  // Quantised, launcher, XNNPACK.
  {.name = "quantized.engine", .types = "text none", .allowed = "none x86 onednn", .standard = "x86", .honoured_by = "qlinear; none: NO_KERNEL",
   .summary = "Which engine runs quantised operations."},
  {.name = "quantized.supported_engines", .types = "list", .standard = "x86 onednn", .access = kRead, .summary = "What quantized.engine may be, but for none."},
  {.name = "xeon.run_cpu.create_args", .torch = "xeon.run_cpu.create_args(parser=None)", .types = "", .access = kAct, .summary = "Options of torch's launcher."},
  {.name = "xeon.run_cpu.main", .torch = "xeon.run_cpu.main(args)", .types = "", .access = kAct, .summary = "Torch's launcher of CPU instances."},
  {.name = "xnnpack.enabled", .note = "of the build", .access = kRead, .summary = "Whether XNNPACK is there."},

  // Switches outside torch.backends that these depend on.
  {.name = "float32_matmul_precision", .torch = "torch.get_float32_matmul_precision()", .types = "text", .allowed = "highest high medium",
   .note = "reads what the matmul leaves compute", .environment = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
   .replaced_by = "cuda.matmul.fp32_precision, mkldnn.matmul.fp32_precision", .honoured_by = "f32 gemm, einsum, mha",
   .summary = "Legacy name. A write expands into the matmul leaves of CUDA and oneDNN."},
  {.name = "deterministic_algorithms", .torch = "torch.use_deterministic_algorithms(mode)", .standard = "false", .honoured_by = "every operation",
   .summary = "Only operations that give the same bits again; others fail."},
  {.name = "deterministic_algorithms.warn_only", .torch = "torch.use_deterministic_algorithms(..., warn_only)", .standard = "false",
   .honoured_by = "every operation", .summary = "With deterministic_algorithms: others only warn."},
  {.name = "deterministic_debug_mode", .torch = "torch.get_deterministic_debug_mode()", .types = "int text", .allowed = "default warn error",
   .note = "reads deterministic_algorithms and its warn_only", .min = 0, .max = 2, .honoured_by = "every operation",
   .summary = "The two flags above as one: 0 default, 1 warn, 2 error."},
};
// clang-format on

}  // namespace backendd

#endif  // BACKENDD_SERVER_FLAGS_TABLE_H_
