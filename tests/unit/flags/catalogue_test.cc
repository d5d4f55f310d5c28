#include "server/flags/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "server/flags/precision.h"
#include "tests/support/status_matchers.h"

namespace backendd {
namespace {

// Every public name of torch.backends, the switches outside that they depend on, and our own two.
const char* const kNames[] = {
    // clang-format off
    "cpu.get_cpu_capability",
    "cpu.preferred_blas_library",
    "cpu.preferred_fft_library",
    "cuda.SDPAParams",
    "cuda.blas_workspace_size",
    "cuda.can_use_cudnn_attention",
    "cuda.can_use_efficient_attention",
    "cuda.can_use_flash_attention",
    "cuda.cublas_workspace_size",
    "cuda.cublaslt_workspace_size",
    "cuda.cudnn_sdp_enabled",
    "cuda.cufft_plan_cache",
    "cuda.cufft_plan_cache.clear",
    "cuda.cufft_plan_cache.max_size",
    "cuda.cufft_plan_cache.size",
    "cuda.flash_sdp_enabled",
    "cuda.fp16_bf16_reduction_math_sdp_allowed",
    "cuda.is_built",
    "cuda.is_ck_sdpa_available",
    "cuda.is_flash_attention_available",
    "cuda.math_sdp_enabled",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_fp16_accumulation",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_reduced_precision_reduction_split_k",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.prefer_cublaslt_grouped_gemm",
    "cuda.mem_efficient_sdp_enabled",
    "cuda.overrideable_sdp_enabled",
    "cuda.preferred_blas_library",
    "cuda.preferred_linalg_library",
    "cuda.preferred_rocm_fa_library",
    "cuda.sdp_kernel",
    "cuda.sdp_priority_order",
    "cudnn.CUDNN_TENSOR_DTYPES",
    "cudnn.allow_tf32",
    "cudnn.benchmark",
    "cudnn.benchmark_limit",
    "cudnn.conv.fp32_precision",
    "cudnn.depthwise_kernel",
    "cudnn.deterministic",
    "cudnn.enabled",
    "cudnn.flags",
    "cudnn.fp32_precision",
    "cudnn.is_acceptable",
    "cudnn.is_available",
    "cudnn.rnn.fp32_precision",
    "cudnn.set_flags",
    "cudnn.version",
    "cusparselt.get_max_alg_id",
    "cusparselt.is_available",
    "cusparselt.version",
    "deterministic_algorithms",
    "deterministic_algorithms.warn_only",
    "deterministic_debug_mode",
    "disable_global_flags",
    "flags",
    "flags_frozen",
    "float32_matmul_precision",
    "fp32_precision",
    "kleidiai.is_available",
    "mha.fastpath_enabled",
    "miopen.flags",
    "miopen.immediate",
    "miopen.set_flags",
    "mkl.VERBOSE_OFF",
    "mkl.VERBOSE_ON",
    "mkl.is_available",
    "mkl.verbose",
    "mkldnn.VERBOSE_OFF",
    "mkldnn.VERBOSE_ON",
    "mkldnn.VERBOSE_ON_CREATION",
    "mkldnn.allow_tf32",
    "mkldnn.conv.fp32_precision",
    "mkldnn.deterministic",
    "mkldnn.enabled",
    "mkldnn.flags",
    "mkldnn.fp32_precision",
    "mkldnn.is_acl_available",
    "mkldnn.is_available",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "mkldnn.set_flags",
    "mkldnn.verbose",
    "mps.get_core_count",
    "mps.get_name",
    "mps.is_available",
    "mps.is_built",
    "mps.is_macos13_or_newer",
    "mps.is_macos_or_newer",
    "nnpack.enabled",
    "nnpack.flags",
    "nnpack.is_available",
    "nnpack.set_flags",
    "openmp.is_available",
    "opt_einsum.enabled",
    "opt_einsum.flags",
    "opt_einsum.get_opt_einsum",
    "opt_einsum.is_available",
    "opt_einsum.set_flags",
    "opt_einsum.strategy",
    "python_native.all_dsls",
    "python_native.aot_enabled",
    "python_native.available_dsls",
    "python_native.cutedsl.available",
    "python_native.cutedsl.disable",
    "python_native.cutedsl.disabled",
    "python_native.cutedsl.enable",
    "python_native.cutedsl.enabled",
    "python_native.cutedsl.name",
    "python_native.cutedsl.version",
    "python_native.disabled_dispatch_keys",
    "python_native.disabled_operations",
    "python_native.flydsl.available",
    "python_native.flydsl.disable",
    "python_native.flydsl.disabled",
    "python_native.flydsl.enable",
    "python_native.flydsl.enabled",
    "python_native.flydsl.name",
    "python_native.flydsl.version",
    "python_native.get_dsl_operations",
    "python_native.helion.available",
    "python_native.helion.backend",
    "python_native.helion.disable",
    "python_native.helion.disabled",
    "python_native.helion.enable",
    "python_native.helion.enabled",
    "python_native.helion.name",
    "python_native.helion.version",
    "python_native.is_dsl_disabled",
    "python_native.is_operation_disabled",
    "python_native.operations_disabled",
    "python_native.triton.available",
    "python_native.triton.disable",
    "python_native.triton.disabled",
    "python_native.triton.enable",
    "python_native.triton.enabled",
    "python_native.triton.name",
    "python_native.triton.version",
    "quantized.engine",
    "quantized.supported_engines",
    "set_flags",
    "xeon.run_cpu.create_args",
    "xeon.run_cpu.main",
    "xnnpack.enabled",
    // clang-format on
};

TEST(CatalogueTest, HasEveryNameOnceAndNoOther) {
  const std::set<std::string> expected(std::begin(kNames), std::end(kNames));
  std::set<std::string> found;
  for (const FlagInfo& flag : Catalogue::Get().flags())
    EXPECT_TRUE(found.insert(flag.name).second) << flag.name << " twice";
  EXPECT_EQ(found, expected);
}

TEST(CatalogueTest, EveryRowIsWhole) {
  const Catalogue& catalogue = Catalogue::Get();
  for (FlagId id = 0; id < catalogue.size(); ++id) {
    const FlagInfo& flag = catalogue.info(id);
    SCOPED_TRACE(flag.name);
    EXPECT_EQ(flag.id, id);
    EXPECT_EQ(catalogue.Find(flag.name), &flag);
    EXPECT_FALSE(flag.summary.empty());
    EXPECT_EQ(flag.writable(), !flag.scopes.empty());
    if (flag.access == FlagAccess::kAction) EXPECT_TRUE(flag.types.empty());
    if (!flag.writable()) continue;
    EXPECT_FALSE(flag.honoured_by.empty() && flag.needs.empty());
    EXPECT_TRUE(flag.default_value.has_value() || !flag.default_note.empty());
    EXPECT_NE(flag.binding, FlagBinding::kNone);
    // A default is a value that may be written, in its one form.
    if (!flag.default_value.has_value()) continue;
    const auto normalised = Normalise(flag, *flag.default_value);
    ASSERT_OK(normalised);
    EXPECT_EQ(*normalised, *flag.default_value);
  }
}

TEST(CatalogueTest, UnknownNamesComeWithNearOnes) {
  const auto unknown = Catalogue::Get().Lookup("cudnn.benchmrk");
  EXPECT_THAT(unknown, HasReason(Reason::kFlagUnknown));
  EXPECT_EQ(DetailsOf(unknown.status())->metadata["near"], "cudnn.benchmark");
  EXPECT_EQ(Catalogue::Get().Find(""), nullptr);
}

FlagValue Form(const char* name, FlagValue value) {
  const auto form = Normalise(*Catalogue::Get().Find(name), std::move(value));
  return form.ok() ? *form : FlagValue("refused");
}

TEST(Normalise, BringsEveryValueIntoItsOneForm) {
  EXPECT_EQ(Form("cuda.preferred_blas_library", "default"), FlagValue("cublas"));
  EXPECT_EQ(Form("cuda.preferred_blas_library", "hipblaslt"), FlagValue("cublaslt"));
  EXPECT_EQ(Form("cuda.preferred_linalg_library", "default"), FlagValue("default"));
  EXPECT_EQ(Form("python_native.disabled_operations", TextList{"b", "a", "b"}),
            FlagValue(TextList{"a", "b"}));
  EXPECT_EQ(Form("fp32_precision", "none"), FlagValue(None{}));
  EXPECT_EQ(Form("deterministic_debug_mode", "error"), FlagValue(int64_t{2}));
  EXPECT_EQ(Form("cuda.matmul.allow_bf16_reduced_precision_reduction", BoolPair(true, true)),
            FlagValue(true));
  EXPECT_EQ(Form("cuda.matmul.allow_bf16_reduced_precision_reduction", BoolPair(false, false)),
            FlagValue(BoolPair(false, false)));
}

TEST(Normalise, RefusesWhatIsNotExactlyAllowedAndSaysWhatIs) {
  const FlagValue refused("refused");
  EXPECT_EQ(Form("cudnn.enabled", int64_t{1}), refused);
  EXPECT_EQ(Form("cudnn.enabled", "true"), refused);
  EXPECT_EQ(Form("cudnn.enabled", None{}), refused);
  EXPECT_EQ(Form("cudnn.benchmark_limit", true), refused);
  EXPECT_EQ(Form("float32_matmul_precision", "HIGH"), refused);
  EXPECT_EQ(Form("fp32_precision", " ieee"), refused);
  EXPECT_EQ(Form("fp32_precision", ""), refused);
  EXPECT_EQ(Form("mkldnn.verbose", int64_t{3}), refused);
  EXPECT_EQ(Form("cuda.cublas_workspace_size", ":4096"), refused);
  EXPECT_EQ(Form("cuda.cublaslt_workspace_size", int64_t{-1}), refused);
  EXPECT_EQ(Form("cuda.matmul.allow_fp16_reduced_precision_reduction", BoolPair(true, false)),
            refused);
  EXPECT_EQ(Form("cuda.flash_sdp_enabled", TextList{}), refused);
  const auto status = Normalise(*Catalogue::Get().Find("cudnn.benchmark_limit"), int64_t{-3});
  EXPECT_THAT(status, HasReason(Reason::kFlagValueInvalid));
  const auto details = DetailsOf(status.status());
  EXPECT_EQ(details->metadata.at("value"), "-3");
  EXPECT_EQ(details->metadata.at("allowed"), "0 or more");
}

TEST(Aliases, WriteOnlyValuesThatTheirTargetsAccept) {
  for (const FlagInfo& flag : Catalogue::Get().flags()) {
    if (!IsAlias(flag.id)) continue;
    std::vector<FlagValue> values = {true, false, int64_t{0}, int64_t{1}, int64_t{2}};
    for (const std::string& word : flag.allowed) values.emplace_back(word);
    for (const FlagValue& value : values) {
      const auto form = Normalise(flag, value);
      if (!form.ok()) continue;
      const auto writes = ExpandAlias(flag.id, *form);
      EXPECT_EQ(writes.size(), AliasTargets(flag.id).size()) << flag.name << ToText(value);
      for (const auto& [target, written] : writes)
        EXPECT_OK(Normalise(Catalogue::Get().info(target), written));
    }
  }
}

TEST(FlagTable, InTheReadmeIsTheCatalogues) {
  std::ifstream file(FLAG_README);
  std::stringstream readme;
  readme << file.rdbuf();
  EXPECT_NE(readme.str().find(FlagTableMarkdown()), std::string::npos)
      << "to fix: replace the table in server/flags/README.md by what flag_table prints";
}

}  // namespace
}  // namespace backendd
