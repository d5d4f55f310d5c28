#include "server/node/flags/environment.h"

#include "tests/unit/flags/store_fixture.h"

namespace backendd::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EnvironmentTest : public StoreTest {
 protected:
  // What the flag reads under one variable, and that malformed text gave exactly one warning.
  FlagValue Under(const std::string& variable, const std::string& text, const std::string& flag,
                  bool malformed) {
    NodeFacts facts;
    facts.cpu_capability = "AVX512";
    Start(facts, {{variable, text}});
    EXPECT_EQ(warnings_.size(), malformed ? 1u : 0u) << variable << "='" << text << "'";
    if (malformed && !warnings_.empty()) {
      EXPECT_THAT(warnings_[0], HasSubstr("'" + text + "'"));
      EXPECT_EQ(Read(flag).layer, Layer::kBuiltIn);
    }
    return Get(flag);
  }
};

TEST_F(EnvironmentTest, SwitchesAreExactlyZeroOrOne) {
  for (const char* text : {"", "2", "true", " 1", "1 ", "01", "-1", "on", "yes"})
    EXPECT_EQ(Under("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", text, "cuda.matmul.allow_tf32", true),
              FlagValue(false));
  EXPECT_EQ(Under("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", "cuda.matmul.allow_tf32", false),
            FlagValue(true));
  EXPECT_EQ(Under("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "0", "cuda.matmul.fp32_precision", false),
            FlagValue(None{}));
  EXPECT_FALSE(Read("cuda.matmul.fp32_precision").written);
}

TEST_F(EnvironmentTest, EitherOfTwoNamesPrefersCublasLt) {
  const auto both = [&](const char* cublaslt, const char* hipblaslt) {
    Start({},
          {{"TORCH_BLAS_PREFER_CUBLASLT", cublaslt}, {"TORCH_BLAS_PREFER_HIPBLASLT", hipblaslt}});
    return Get("cuda.preferred_blas_library");
  };
  EXPECT_EQ(both("0", "1"), FlagValue("cublaslt"));
  EXPECT_EQ(Read("cuda.preferred_blas_library").source, "TORCH_BLAS_PREFER_HIPBLASLT");
  EXPECT_EQ(both("1", "0"), FlagValue("cublaslt"));
  EXPECT_EQ(both("0", "0"), FlagValue("cublas"));
  EXPECT_EQ(both("x", "1"), FlagValue("cublaslt"));
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(EnvironmentTest, S31_LtWorkspacesAreKiBAsStoiReadsThem) {
  struct Row {
    const char* text;
    int64_t bytes;
    bool malformed;
  };
  for (const Row& row : std::initializer_list<Row>{{"32768", 33554432, false},
                                                   {"4096", 4194304, false},
                                                   {" 64", 65536, false},
                                                   {"+64", 65536, false},
                                                   {"64x", 65536, false},
                                                   {"1e3", 1024, false},
                                                   {"0x10", 0, false},
                                                   {"2147483647", 2199023254528, false},
                                                   {"2147483648", 1048576, true},
                                                   {"-1", 1048576, true},
                                                   {"", 1048576, true},
                                                   {"garbage", 1048576, true}})
    EXPECT_EQ(
        Under("CUBLASLT_WORKSPACE_SIZE", row.text, "cuda.cublaslt_workspace_size", row.malformed),
        FlagValue(row.bytes))
        << row.text;
  Start();
  EXPECT_EQ(Get("cuda.cublaslt_workspace_size"), FlagValue(int64_t{1048576}));
}

TEST(WorkspaceBytes, S25_CountsEveryGroup) {
  EXPECT_EQ(WorkspaceBytes(":4096:8"), 33554432);
  EXPECT_EQ(WorkspaceBytes(":16:8"), 131072);
  EXPECT_EQ(WorkspaceBytes(":4096:2:16:8"), 8519680);
  EXPECT_EQ(WorkspaceBytes(":4096:8:16:8"), 33685504);
  EXPECT_EQ(WorkspaceBytes(":128:8:64:16:32:32"), 3145728);
  EXPECT_EQ(WorkspaceBytes(":0:0"), 0);
}

TEST_F(EnvironmentTest, S26_MalformedWorkspaceTextIsOneWarningWithEachDevicesDefault) {
  NodeFacts facts;
  facts.cuda_devices = {{"GPU-a", 8, 6}, {"GPU-b", 9, 0}};
  for (const char* text : {":4096", "4096:8", "", "abc", ":a:b", ":4096:8:16", "x:16:8y:4:2",
                           ": 16:8", ":4096 :8", "-1", ":+1:8", ":99999999999999999999:1"}) {
    SCOPED_TRACE(text);
    EXPECT_EQ(WorkspaceBytes(text), std::nullopt);
    Start(facts, {{"CUBLAS_WORKSPACE_CONFIG", text}});
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr("'" + std::string(text) + "'"));
    EXPECT_THAT(warnings_[0], HasSubstr("8519680 bytes on GPU-a"));
    EXPECT_THAT(warnings_[0], HasSubstr("33554432 bytes on GPU-b"));
    EXPECT_EQ(Get("cuda.cublas_workspace_size", "GPU-a"), FlagValue(int64_t{8519680}));
    EXPECT_EQ(Get("cuda.cublas_workspace_size", "GPU-b"), FlagValue(int64_t{33554432}));
    EXPECT_EQ(Refusal("cuda.cublas_workspace_size", text), Reason::kFlagValueInvalid);
    const auto lines = store_->latest()->Explain(FlagIdOf("cuda.cublas_workspace_size"),
                                                 DeviceId("GPU-a"), std::nullopt);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].entry.warning, warnings_[0]);
    EXPECT_EQ(lines[0].entry.value, FlagValue(int64_t{8519680}));  // what is used instead
    EXPECT_FALSE(lines[0].winner);
  }
}

TEST_F(EnvironmentTest, CpuCapabilitiesAreACapInLowerCase) {
  const char kVariable[] = "ATEN_CPU_CAPABILITY";
  const char kFlag[] = "cpu.get_cpu_capability";
  EXPECT_EQ(Under(kVariable, "default", kFlag, false), FlagValue("DEFAULT"));
  EXPECT_EQ(Under(kVariable, "avx2", kFlag, false), FlagValue("AVX2"));
  EXPECT_EQ(Under(kVariable, "avx512", kFlag, false), FlagValue("AVX512"));
  for (const char* text : {"AVX2", "avx", "vsx", "", " avx2"})
    EXPECT_EQ(Under(kVariable, text, kFlag, true), FlagValue("AVX512"));
  NodeFacts modest;
  modest.cpu_capability = "AVX2";
  Start(modest, {{kVariable, "avx512"}});
  EXPECT_EQ(Get(kFlag), FlagValue("AVX2"));
}

TEST_F(EnvironmentTest, UnifiedWorkspacesTakeTheCublasSizeWhereTheyAreCached) {
  const std::map<std::string, std::string> cached = {{"TORCH_CUBLAS_WORKSPACE_CACHE", "1"},
                                                     {"CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8"}};
  Start({}, cached);
  EXPECT_EQ(Get("cuda.cublaslt_workspace_size"), FlagValue(int64_t{8519680}));
  auto apart = cached;
  apart["TORCH_CUBLASLT_UNIFIED_WORKSPACE"] = "0";
  Start({}, apart);
  EXPECT_EQ(Get("cuda.cublaslt_workspace_size"), FlagValue(int64_t{1048576}));
  auto own = cached;
  own["CUBLASLT_WORKSPACE_SIZE"] = "64";
  Start({}, own);
  EXPECT_EQ(Get("cuda.cublaslt_workspace_size"), FlagValue(int64_t{65536}));
}

TEST_F(EnvironmentTest, LibrariesLogLevelsAndTheRest) {
  EXPECT_EQ(Under("MKL_VERBOSE", "1", "mkl.verbose", false), FlagValue(int64_t{1}));
  EXPECT_EQ(Under("ONEDNN_VERBOSE", "2", "mkldnn.verbose", false), FlagValue(int64_t{2}));
  EXPECT_EQ(Under("DNNL_VERBOSE", "7", "mkldnn.verbose", true), FlagValue(int64_t{0}));
  EXPECT_EQ(Under("TORCH_DISABLE_NATIVE_AOT", "1", "python_native.aot_enabled", false),
            FlagValue(false));
  EXPECT_EQ(Under("TORCH_DISABLE_NATIVE_AOT", "yes", "python_native.aot_enabled", false),
            FlagValue(true));
  EXPECT_EQ(Under("TORCH_LINALG_PREFER_HIPSOLVER", "1", "cuda.preferred_linalg_library", false),
            FlagValue("cusolver"));
  EXPECT_EQ(Under("TORCH_ROCM_FA_PREFER_CK", "1", "cuda.preferred_rocm_fa_library", false),
            FlagValue("ck"));
}

TEST_F(EnvironmentTest, CudnnComesFirstOnHopperUnlessAskedNotTo) {
  NodeFacts facts;
  facts.cuda_devices = {{"GPU-a", 9, 0}};
  facts.libraries["cudnn"] = "91600";
  Start(facts);
  EXPECT_EQ(std::get<TextList>(Get("cuda.sdp_priority_order", "GPU-a"))[0], "cudnn");
  Start(facts, {{"TORCH_CUDNN_SDPA_DEPRIORITIZED", "1"}});
  EXPECT_EQ(std::get<TextList>(Get("cuda.sdp_priority_order", "GPU-a"))[0], "flash");
}

TEST_F(EnvironmentTest, OtherVariablesAreNotLookedAt) {
  const Environment environment =
      ParseEnvironment({{"PATH", "x"}, {"TORCH_ALLOW_TF32", "2"}, {"cudnn.enabled", "0"}}, {});
  EXPECT_THAT(environment.entries, IsEmpty());
  EXPECT_THAT(environment.warnings, IsEmpty());
}

}  // namespace
}  // namespace backendd::node
