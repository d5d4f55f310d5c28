#include "server/node/flags/flag_store.h"

#include "server/node/flags/queries.h"
#include "tests/unit/flags/store_fixture.h"

namespace backendd::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class FlagStoreTest : public StoreTest {
 protected:
  static NodeFacts WithProviders() {
    NodeFacts facts;
    facts.providers["triton"] = {"3.5", {{"scaled_mm", {"CPU"}}, {"bmm", {"CPU", "CUDA"}}}};
    return facts;
  }
};

TEST_F(FlagStoreTest, S02_NestedLeasesUncoverWhatWasBelow) {
  Lease(1, {{"cudnn.benchmark_limit", int64_t{5}}});
  Lease(2, {{"cudnn.benchmark_limit", int64_t{2}}});
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{2}));
  Release(2);
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{5}));
  Release(1);
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{10}));
}

TEST_F(FlagStoreTest, S03_ReleasesInAnyOrderNeverBringBackAnOldValue) {
  Lease(1, {{"cudnn.benchmark_limit", int64_t{3}}});
  Lease(2, {{"cudnn.benchmark_limit", int64_t{7}}});
  Release(1);
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{7}));
  Set({{"cudnn.benchmark_limit", int64_t{12}}});
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{7}));
  Release(2);
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{12}));
}

TEST_F(FlagStoreTest, S05_AnEntryTouchesOnlyTheFlagItNames) {
  Set({{"cudnn.benchmark", true},
       {"cudnn.benchmark_limit", int64_t{4}},
       {"cudnn.deterministic", true}});
  const Change change = Lease(1, {{"cudnn.deterministic", false}});
  EXPECT_THAT(Moved(change.changes), ElementsAre("cudnn.deterministic"));
  EXPECT_EQ(Get("cudnn.enabled"), FlagValue(true));
  EXPECT_EQ(Get("cudnn.benchmark"), FlagValue(true));
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{4}));
  EXPECT_EQ(Get("cudnn.deterministic"), FlagValue(false));
  Release(1);
  EXPECT_EQ(Get("cudnn.deterministic"), FlagValue(true));
}

TEST_F(FlagStoreTest, S08_OneBadEntryRefusesAllAndNamesItself) {
  const uint64_t revision = store_->latest()->revision();
  const auto violations = Refusals({{"cudnn.benchmark", true},
                                    {"cudnn.benchmark_limit", int64_t{3}},
                                    {"quantized.engine", "no-such-engine"}});
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].field, "entries[2].value");
  EXPECT_EQ(violations[0].reason, Reason::kFlagValueInvalid);
  EXPECT_EQ(store_->Apply("nothing", false), std::nullopt);
  EXPECT_EQ(store_->latest()->revision(), revision);
}

TEST_F(FlagStoreTest, S09_OffEntriesAddUpAndLeavingRemovesOnlyTheOwn) {
  Start(WithProviders());
  Set({{"python_native.disabled_operations", TextList{"scaled_mm"}}});
  Lease(1, {{"python_native.disabled_operations", TextList{"scaled_mm", "bmm"}}});
  EXPECT_EQ(Get("python_native.disabled_operations"), FlagValue(TextList{"bmm", "scaled_mm"}));
  Release(1);
  EXPECT_EQ(Get("python_native.disabled_operations"), FlagValue(TextList{"scaled_mm"}));
  Set({{"python_native.triton.enabled", false}});
  Lease(2, {{"python_native.triton.enabled", true}});  // nobody revives what another switched off
  EXPECT_EQ(Get("python_native.triton.enabled"), FlagValue(false));
  EXPECT_EQ(Read("python_native.triton.enabled").layer, Layer::kBase);
}

TEST_F(FlagStoreTest, S09_NamesThatNoProviderRegistersAreRefused) {
  Start(WithProviders());
  const auto violations = Refusals({{"python_native.disabled_operations", TextList{"bnm"}}});
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].reason, Reason::kFlagValueInvalid);
  EXPECT_THAT(violations[0].description, ::testing::HasSubstr("bmm"));
}

TEST_F(FlagStoreTest, S10_AFlagThatTheNodeCannotHaveReadsUnavailable) {
  Lease(1, {{"mkldnn.enabled", false}});
  const Change released = Release(1);
  EXPECT_THAT(released.warnings, IsEmpty());
  EXPECT_EQ(Read("mkldnn.allow_tf32").value, std::nullopt);
  EXPECT_NE(Read("mkldnn.allow_tf32").unavailable, "");
  EXPECT_EQ(Refusal("mkldnn.allow_tf32", false), Reason::kFlagUnavailable);
}

TEST_F(FlagStoreTest, S11_TheBuiltInTf32YieldsToAParentThatIsSet) {
  const Change ieee = Set({{"fp32_precision", "ieee"}});
  for (const char* leaf :
       {"cudnn.fp32_precision", "cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision",
        "cudnn.rnn.fp32_precision", "mkldnn.matmul.fp32_precision"}) {
    EXPECT_EQ(Get(leaf), FlagValue("ieee")) << leaf;
    EXPECT_THAT(Moved(ieee.changes), Contains(std::string(leaf)));
  }
  Set({{"fp32_precision", None{}}});
  EXPECT_EQ(Get("cuda.matmul.fp32_precision"), FlagValue(None{}));
  EXPECT_EQ(Get("cudnn.conv.fp32_precision"), FlagValue("tf32"));
  Set({{"cudnn.conv.fp32_precision", "tf32"}});
  const Change again = Set({{"fp32_precision", "ieee"}});
  EXPECT_EQ(Get("cudnn.conv.fp32_precision"), FlagValue("tf32"));
  EXPECT_EQ(Get("cudnn.rnn.fp32_precision"), FlagValue("ieee"));
  EXPECT_THAT(Names(again.kept), ElementsAre("cudnn.conv.fp32_precision"));
}

TEST_F(FlagStoreTest, S12_LegacyReadsOfANewStyleWriteSayThatTheyAreInconsistent) {
  Set({{"cuda.matmul.fp32_precision", "tf32"}});
  EXPECT_EQ(Legacy("cuda.matmul.allow_tf32"), "true (inconsistent)");
  EXPECT_EQ(Legacy("float32_matmul_precision"), "high (inconsistent)");
  Set({{"cuda.matmul.allow_tf32", true}});
  EXPECT_EQ(Legacy("cuda.matmul.allow_tf32"), "true");
  EXPECT_EQ(Legacy("float32_matmul_precision"), "high");
  EXPECT_EQ(Get("cuda.matmul.fp32_precision"), FlagValue("tf32"));

  const SessionId compat(7);
  Start();
  store_->SetSemantics(compat, true);
  Set(compat, {{"cuda.matmul.fp32_precision", "tf32"}});
  EXPECT_EQ(GetFor(compat, "cuda.matmul.allow_tf32"), FlagValue("PRECISION_MIXED"));
  EXPECT_EQ(GetFor(compat, "float32_matmul_precision"), FlagValue("PRECISION_MIXED"));
  Set(compat, {{"cuda.matmul.allow_tf32", true}});
  EXPECT_EQ(GetFor(compat, "float32_matmul_precision"), FlagValue("high"));
}

TEST_F(FlagStoreTest, S13_TwoLegacyNamesAreOneFact) {
  struct Step {
    const char* flag;
    FlagValue value;
    const char* reads;
  };
  const Step kSteps[] = {
      {"cuda.matmul.allow_tf32", true, "high true tf32 none"},
      {"cuda.matmul.allow_tf32", false, "highest false ieee none"},
      {"float32_matmul_precision", "medium", "medium true tf32 bf16"},
      {"float32_matmul_precision", "high", "high true tf32 tf32"},
      {"float32_matmul_precision", "highest", "highest false ieee ieee"},
  };
  for (const Step& step : kSteps) {
    Set({{step.flag, step.value}});
    EXPECT_EQ(Legacy("float32_matmul_precision") + " " + Legacy("cuda.matmul.allow_tf32") + " " +
                  ToText(Get("cuda.matmul.fp32_precision")) + " " +
                  ToText(Get("mkldnn.matmul.fp32_precision")),
              step.reads);
  }
}

TEST_F(FlagStoreTest, S14_APrecisionThatCudaLacksIsRefusedOrSeenAsNone) {
  EXPECT_EQ(Refusal("cudnn.conv.fp32_precision", "bf16"), Reason::kFlagValueInvalid);
  Set({{"fp32_precision", "bf16"}});
  for (const char* leaf :
       {"cuda.matmul.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"})
    EXPECT_EQ(Get(leaf), FlagValue(None{})) << leaf;
  EXPECT_EQ(Legacy("float32_matmul_precision"), "medium (inconsistent)");
  Set({{"cudnn.fp32_precision", "tf32"}});
  EXPECT_EQ(Get("cuda.matmul.fp32_precision"), FlagValue("tf32"));
  EXPECT_EQ(Get("mkldnn.matmul.fp32_precision"), FlagValue("bf16"));
  EXPECT_EQ(Refusal("generic.conv.fp32_precision", "ieee"), Reason::kFlagUnknown);
  EXPECT_EQ(Refusal("cuda.matmul.fp32_precision", "fp16"), Reason::kFlagValueInvalid);
}

TEST_F(FlagStoreTest, S15_AnEndedLeaseLeavesNoMixedStateBehind) {
  const SessionId compat(9);
  store_->SetSemantics(compat, true);
  Lease(1, {{"cuda.matmul.fp32_precision", "tf32"}, {"cudnn.fp32_precision", "tf32"}});
  Release(1);
  EXPECT_EQ(Legacy("cuda.matmul.allow_tf32"), "false");
  EXPECT_EQ(Legacy("float32_matmul_precision"), "highest");
  EXPECT_EQ(Legacy("cudnn.allow_tf32"), "true");
  EXPECT_EQ(GetFor(compat, "cuda.matmul.allow_tf32"), FlagValue(false));
}

TEST_F(FlagStoreTest, S16_TheEnvironmentIsALayerNotALock) {
  Start({}, {{"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"}});
  const auto at_start = [&] {
    for (const char* flag :
         {"float32_matmul_precision", "cuda.matmul.allow_tf32", "cuda.matmul.fp32_precision"}) {
      EXPECT_EQ(Read(flag).layer, Layer::kEnvironment) << flag;
      EXPECT_EQ(Read(flag).source, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") << flag;
    }
    EXPECT_EQ(Legacy("float32_matmul_precision"), "high");
    EXPECT_EQ(Legacy("cuda.matmul.allow_tf32"), "true");
  };
  at_start();
  Set({{"cuda.matmul.allow_tf32", false}});
  EXPECT_EQ(Legacy("cuda.matmul.allow_tf32"), "false");
  EXPECT_EQ(Legacy("float32_matmul_precision"), "highest");
  EXPECT_EQ(Get("cuda.matmul.fp32_precision"), FlagValue("ieee"));
  Unset("cuda.matmul.allow_tf32");
  at_start();
}

TEST_F(FlagStoreTest, S44_WithoutAPlannerEinsumTakesNoWishes) {
  NodeFacts facts;
  facts.einsum_planner = false;
  Start(facts);
  EXPECT_EQ(Refusal("opt_einsum.enabled", false), std::nullopt);
  EXPECT_EQ(Refusal("opt_einsum.enabled", true), Reason::kFlagUnavailable);
  EXPECT_EQ(Refusal("opt_einsum.strategy", "auto"), Reason::kFlagUnavailable);
  EXPECT_EQ(Read("opt_einsum.enabled").value, std::nullopt);
  EXPECT_EQ(Get("opt_einsum.is_available"), FlagValue(false));
  Start();
  EXPECT_EQ(Get("opt_einsum.enabled"), FlagValue(true));
  EXPECT_EQ(Refusal("opt_einsum.strategy", "random"), Reason::kFlagValueInvalid);
  EXPECT_EQ(Get("opt_einsum.strategy"), FlagValue("auto"));
  Set({{"opt_einsum.strategy", "greedy"}});
  EXPECT_EQ(Get("opt_einsum.strategy"), FlagValue("greedy"));
  // It needs enabled in the result of the request, wherever that stands in it.
  EXPECT_EQ(Refusals({{"opt_einsum.strategy", "auto"}, {"opt_einsum.enabled", false}}).size(), 1u);
}

TEST_F(FlagStoreTest, S45_AnEngineThatNoLibraryProvidesIsRefusedWithTheList) {
  EXPECT_EQ(Get("quantized.engine"), FlagValue("x86"));
  const auto violations = Refusals({{"quantized.engine", "fbgemm"}});
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].reason, Reason::kFlagValueInvalid);
  EXPECT_THAT(violations[0].description, ::testing::HasSubstr("none, x86, onednn"));
  Set({{"quantized.engine", "none"}});
  EXPECT_EQ(Get("quantized.engine"), FlagValue(None{}));
}

TEST_F(FlagStoreTest, EveryViolationIsReportedAtOnce) {
  const auto violations = Refusals({{"cudnn.benchmrk", true},
                                    {"cuda.is_built", true},
                                    {"cudnn.benchmark", int64_t{1}},
                                    {"cudnn.benchmark_limit", int64_t{-3}},
                                    {"mkldnn.allow_tf32", true}});
  std::vector<Reason> reasons;
  for (const Violation& violation : violations) reasons.push_back(violation.reason);
  EXPECT_THAT(reasons,
              ElementsAre(Reason::kFlagUnknown, Reason::kFlagReadOnly, Reason::kFlagValueInvalid,
                          Reason::kFlagValueInvalid, Reason::kFlagUnavailable));
  EXPECT_THAT(violations[3].description, ::testing::HasSubstr("-3"));
}

TEST_F(FlagStoreTest, EntriesThatContradictEachOtherAreRefusedWhateverTheirOrder) {
  const Values both = {{"cuda.matmul.allow_tf32", true}, {"cuda.matmul.fp32_precision", "ieee"}};
  EXPECT_EQ(Refusals(both).size(), 1u);
  EXPECT_EQ(Refusals({both[1], both[0]}).size(), 1u);
  EXPECT_THAT(Refusals({both[0], {"cuda.matmul.fp32_precision", "tf32"}}), IsEmpty());
}

TEST_F(FlagStoreTest, ScopesThatAFlagHasNotAreRefused) {
  const auto cache = Refusals({{"cuda.cufft_plan_cache.max_size", int64_t{8}}}, SessionId(1));
  ASSERT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache[0].reason, Reason::kScopeInvalid);
  const auto device = Refusals({{"cudnn.enabled", true}}, {}, DeviceId("GPU-none"));
  ASSERT_EQ(device.size(), 1u);
  EXPECT_EQ(device[0].reason, Reason::kDeviceUnknown);
}

TEST_F(FlagStoreTest, PlanCachesAreTheDevices) {
  EXPECT_EQ(Read("cuda.cufft_plan_cache.max_size").value, std::nullopt);
  EXPECT_EQ(Get("cuda.cufft_plan_cache.max_size", "cpu"), FlagValue(int64_t{4096}));
  EXPECT_EQ(Refusal("cuda.cufft_plan_cache.max_size", int64_t{8}), Reason::kFlagUnavailable);
  const Change change = Set({{"cuda.cufft_plan_cache.max_size", int64_t{8}}}, "cpu");
  ASSERT_EQ(change.changes.size(), 1u);
  EXPECT_EQ(change.changes[0].device, "cpu");
  EXPECT_EQ(Get("cuda.cufft_plan_cache.max_size", "cpu"), FlagValue(int64_t{8}));
}

TEST_F(FlagStoreTest, LayerBeatsScopeAndDeviceBeatsNodeInsideALayer) {
  Set({{"cudnn.benchmark_limit", int64_t{1}}}, "cpu");
  Set({{"cudnn.benchmark_limit", int64_t{2}}});
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{2}));
  EXPECT_EQ(Get("cudnn.benchmark_limit", "cpu"), FlagValue(int64_t{1}));
  Lease(1, {{"cudnn.benchmark_limit", int64_t{3}}});
  EXPECT_EQ(Get("cudnn.benchmark_limit", "cpu"), FlagValue(int64_t{3}));
  Lease(2, {{"cudnn.benchmark_limit", int64_t{4}}}, -5, "cpu");
  EXPECT_EQ(Get("cudnn.benchmark_limit", "cpu"), FlagValue(int64_t{4}));
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{3}));
}

TEST_F(FlagStoreTest, HigherPriorityCoversTheLaterGrantAndSaysSo) {
  Lease(1, {{"cudnn.benchmark_limit", int64_t{5}}}, 1);
  const Change covered = Lease(2, {{"cudnn.benchmark_limit", int64_t{6}}}, 0);
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{5}));
  EXPECT_THAT(covered.shadows, IsEmpty());  // 1 was and is on top; 2 was told when it asked
  const Entry entry{FlagIdOf("cudnn.benchmark_limit"), {}, int64_t{7}, {}};
  EXPECT_EQ(store_->Covering(entry, 0, SessionId(3)), LeaseId(1));
  EXPECT_EQ(store_->Covering(entry, 1, SessionId(3)), std::nullopt);  // the later grant wins
  const Change top = Lease(3, {{"cudnn.benchmark_limit", int64_t{8}}}, 2);
  ASSERT_EQ(top.shadows.size(), 1u);
  EXPECT_EQ(top.shadows[0].lease, LeaseId(1));
  EXPECT_EQ(top.shadows[0].by, LeaseId(3));
  const Change uncovered = Release(3);
  ASSERT_EQ(uncovered.shadows.size(), 1u);
  EXPECT_EQ(uncovered.shadows[0].lease, LeaseId(1));
  EXPECT_EQ(uncovered.shadows[0].by, std::nullopt);
}

TEST_F(FlagStoreTest, OverlaysStandAboveBareValuesAndLeaveInAnyOrder) {
  const SessionId session(5);
  Overlay(1, session, {{"cudnn.benchmark_limit", int64_t{1}}});
  Set(session, {{"cudnn.benchmark_limit", int64_t{2}}});
  EXPECT_EQ(GetFor(session, "cudnn.benchmark_limit"), FlagValue(int64_t{1}));
  Overlay(2, session, {{"cudnn.benchmark_limit", int64_t{3}}});
  Release(1);
  EXPECT_EQ(GetFor(session, "cudnn.benchmark_limit"), FlagValue(int64_t{3}));
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{10}));
  const Change ended = Release(2);
  EXPECT_EQ(GetFor(session, "cudnn.benchmark_limit"), FlagValue(int64_t{2}));
  EXPECT_THAT(Moved(ended.session_changes.at(session)), ElementsAre("cudnn.benchmark_limit"));
  EXPECT_THAT(ended.changes, IsEmpty());
  store_->DropSession(session);
  Done();
  EXPECT_THAT(store_->latest()->SessionsWithPrivateValues(), IsEmpty());
  EXPECT_EQ(GetFor(session, "cudnn.benchmark_limit"), FlagValue(int64_t{10}));
}

TEST_F(FlagStoreTest, ASessionFollowsTheLayersBelowWhereItHasNoWordOfItsOwn) {
  const SessionId session(5);
  Set(session, {{"cuda.matmul.fp32_precision", None{}}});
  const Change change = Set({{"fp32_precision", "ieee"}});
  EXPECT_EQ(GetFor(session, "cuda.matmul.fp32_precision"), FlagValue("ieee"));
  EXPECT_EQ(GetFor(session, "cudnn.rnn.fp32_precision"), FlagValue("ieee"));
  Set(session, {{"fp32_precision", "tf32"}});
  EXPECT_THAT(Names(store_->latest()->PrivateFlags(session, {})),
              Contains("mkldnn.matmul.fp32_precision"));
  EXPECT_EQ(Get("mkldnn.matmul.fp32_precision"), FlagValue("ieee"));
}

TEST_F(FlagStoreTest, SinceMovesOnlyWithTheValue) {
  const uint64_t since = Read("cudnn.benchmark").since;
  EXPECT_EQ(since, store_->latest()->revision());
  Lease(1, {{"cudnn.benchmark", false}});  // the value that it has already
  EXPECT_EQ(Read("cudnn.benchmark").since, since);
  EXPECT_EQ(Read("cudnn.benchmark").layer, Layer::kLease);
  Lease(2, {{"cudnn.benchmark", true}});
  EXPECT_EQ(Read("cudnn.benchmark").since, store_->latest()->revision());
}

TEST_F(FlagStoreTest, SetsThatChangeNothingTakeNoRevision) {
  Set({{"cudnn.benchmark", true}});
  store_->SetBase(Checked({{"cudnn.benchmark", true}}, {}), {"uid 2", ""});
  EXPECT_EQ(store_->Apply("again", false), std::nullopt);
  store_->SetBase(Checked({{"cudnn.benchmark", false}}, {}), {"uid 2", ""});
  store_->Discard();
  EXPECT_EQ(store_->Apply("discarded", false), std::nullopt);
  EXPECT_EQ(Get("cudnn.benchmark"), FlagValue(true));
}

TEST_F(FlagStoreTest, AnUpdateKeepsTheLeasesPlaceInTheStack) {
  Lease(1, {{"cudnn.benchmark_limit", int64_t{1}}});
  Lease(2, {{"cudnn.benchmark_limit", int64_t{2}}});
  Lease(1, {{"cudnn.benchmark_limit", int64_t{3}}, {"cudnn.enabled", false}});
  EXPECT_EQ(Get("cudnn.benchmark_limit"), FlagValue(int64_t{2}));
  EXPECT_EQ(Get("cudnn.enabled"), FlagValue(false));
  Lease(1, {{"cudnn.benchmark_limit", int64_t{3}}});
  EXPECT_EQ(Get("cudnn.enabled"), FlagValue(true));
}

TEST_F(FlagStoreTest, ReductionsReadAsABoolAndKeepTheirSplitK) {
  const std::string flag = "cuda.matmul.allow_fp16_reduced_precision_reduction";
  EXPECT_EQ(Refusal(flag, BoolPair(true, false)), Reason::kFlagValueInvalid);
  Set({{flag, BoolPair(false, false)}});
  EXPECT_EQ(Get(flag), FlagValue(false));
  EXPECT_EQ(Get(flag + "_split_k"), FlagValue(false));
  Set({{flag, false}});  // which gives split-K back
  EXPECT_EQ(Get(flag + "_split_k"), FlagValue(true));
}

TEST_F(FlagStoreTest, WorkspacesReadAsBytesAndFollowThePreferredLibrary) {
  EXPECT_EQ(Read("cuda.blas_workspace_size").value, std::nullopt);
  Set({{"cuda.blas_workspace_size", ":4096:8"}});
  EXPECT_EQ(Get("cuda.cublas_workspace_size"), FlagValue(int64_t{33554432}));
  EXPECT_EQ(Read("cuda.cublas_workspace_size").requested, FlagValue(":4096:8"));
  Set({{"cuda.preferred_blas_library", "hipblaslt"}});
  EXPECT_EQ(Get("cuda.preferred_blas_library"), FlagValue("cublaslt"));
  EXPECT_EQ(Get("cuda.blas_workspace_size"), FlagValue(int64_t{1048576}));
  EXPECT_EQ(Refusal("cuda.blas_workspace_size", ":4096:8"), Reason::kFlagValueInvalid);
}

TEST_F(FlagStoreTest, TheSdpOrderAlwaysHasFiveEntries) {
  Set({{"cuda.sdp_priority_order", TextList{"cudnn", "math", "cudnn"}}});
  EXPECT_EQ(Get("cuda.sdp_priority_order"),
            FlagValue(TextList{"cudnn", "math", "flash", "efficient", "overrideable"}));
  Set({{"cuda.sdp_priority_order", TextList{"flash"}}});
  EXPECT_EQ(Get("cuda.sdp_priority_order"),
            FlagValue(TextList{"flash", "cudnn", "math", "efficient", "overrideable"}));
  EXPECT_EQ(Refusal("cuda.sdp_priority_order", TextList{"fast"}), Reason::kFlagValueInvalid);
}

TEST_F(FlagStoreTest, TheDebugModeIsAViewOfTwoFlags) {
  Set({{"deterministic_debug_mode", "warn"}});
  EXPECT_EQ(Get("deterministic_algorithms"), FlagValue(true));
  EXPECT_EQ(Get("deterministic_algorithms.warn_only"), FlagValue(true));
  EXPECT_EQ(Get("deterministic_debug_mode"), FlagValue(int64_t{1}));
  Set({{"deterministic_algorithms.warn_only", false}});
  EXPECT_EQ(Get("deterministic_debug_mode"), FlagValue(int64_t{2}));
}

TEST_F(FlagStoreTest, DeterminismOnCudaNeedsOneOfTwoWorkspaceTexts) {
  NodeFacts facts;
  facts.cuda_devices = {{"GPU-1", 9, 0}};
  Start(facts);
  EXPECT_EQ(Refusal("deterministic_algorithms", true), Reason::kFlagValueInvalid);
  EXPECT_THAT(
      Refusals({{"deterministic_algorithms", true}, {"cuda.cublas_workspace_size", ":16:8"}}),
      IsEmpty());
  const Change warned = Set({{"deterministic_debug_mode", "warn"}});
  EXPECT_EQ(warned.warnings.size(), 1u);
  Set({{"cuda.cublas_workspace_size", int64_t{33554432}}});  // a byte count never counts
  EXPECT_EQ(Refusal("deterministic_debug_mode", "error"), Reason::kFlagValueInvalid);
}

TEST_F(FlagStoreTest, ExplainsEveryLayerHighestFirst) {
  Start({}, {{"TORCH_BLAS_PREFER_CUBLASLT", "1"}});
  Set({{"cuda.preferred_blas_library", "cublas"}});
  Lease(1, {{"cuda.preferred_blas_library", "ck"}});
  const auto lines =
      store_->latest()->Explain(FlagIdOf("cuda.preferred_blas_library"), {}, std::nullopt);
  std::vector<Layer> layers;
  for (const Explanation& line : lines) layers.push_back(line.entry.layer);
  EXPECT_THAT(layers,
              ElementsAre(Layer::kLease, Layer::kBase, Layer::kEnvironment, Layer::kBuiltIn));
  EXPECT_TRUE(lines[0].winner);
  EXPECT_FALSE(lines[3].winner);
  EXPECT_EQ(lines[0].lease, LeaseId(1));
}

TEST_F(FlagStoreTest, ModRevisionsAreCompared) {
  auto requested = Requested({{"cudnn.benchmark", true}});
  requested[0].if_mod_revision = Read("cudnn.benchmark").since + 1;
  std::vector<Violation> violations;
  store_->Check(requested, {}, true, &violations);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].reason, Reason::kRevisionStale);
}

TEST_F(FlagStoreTest, TheFilesValuesAreALayerAboveTheEnvironment) {
  FlagStore::Options options;
  options.file.push_back(
      {FlagIdOf("float32_matmul_precision"), Layer::kFile, {}, "medium", "file:3"});
  auto store = FlagStore::Create(std::move(options));
  ASSERT_OK(store);
  const Reading& reading = (*store)->latest()->Read(FlagIdOf("mkldnn.matmul.fp32_precision"), {});
  EXPECT_EQ(reading.value, FlagValue("bf16"));
  EXPECT_EQ(reading.source, "file:3");
  FlagStore::Options bad;
  bad.file.push_back({FlagIdOf("cudnn.benchmark_limit"), Layer::kFile, {}, int64_t{-1}, "file:4"});
  EXPECT_THAT(FlagStore::Create(std::move(bad)), HasReason(Reason::kFlagValueInvalid));
}

TEST_F(FlagStoreTest, QueriesAnswerFromWhatTheNodeHas) {
  Start(WithProviders());
  Set({{"python_native.disabled_operations", TextList{"bmm"}}});
  const auto ask = [&](const char* flag, std::vector<std::string> arguments) {
    return Answer(*store_->latest(), FlagIdOf(flag), arguments, {}, {});
  };
  EXPECT_EQ(ask("python_native.is_operation_disabled", {"bmm"})->value, FlagValue(true));
  EXPECT_EQ(ask("python_native.is_dsl_disabled", {"triton"})->value, FlagValue(false));
  EXPECT_EQ(ask("python_native.get_dsl_operations", {"triton"})->value,
            FlagValue(TextList{"bmm", "scaled_mm"}));
  EXPECT_THAT(ask("python_native.get_dsl_operations", {"tritn"}),
              HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(ask("python_native.is_dsl_disabled", {}), HasReason(Reason::kArgumentInvalid));
  EXPECT_THAT(ask("cudnn.is_acceptable", {"x"}), HasReason(Reason::kOpUnsupported));
  EXPECT_EQ(ask("mps.is_macos_or_newer", {"13", "0"})->value, std::nullopt);
  EXPECT_EQ(Get("python_native.available_dsls"), FlagValue(TextList{"triton"}));
  EXPECT_EQ(Get("cuda.is_built"), FlagValue(false));
  EXPECT_THAT(Read("cuda.is_built").source, ::testing::HasSubstr("no CUDA worker"));
}

TEST_F(FlagStoreTest, NewFactsMoveOnlyWhatRestsOnThem) {
  NodeFacts facts;
  facts.cuda_devices = {{"GPU-1", 9, 0}, {"GPU-2", 8, 6}};
  store_->SetFacts(facts);
  const Change change = Done();
  EXPECT_EQ(Get("cuda.cublas_workspace_size", "GPU-1"), FlagValue(int64_t{33554432}));
  EXPECT_EQ(Get("cuda.cublas_workspace_size", "GPU-2"), FlagValue(int64_t{8519680}));
  EXPECT_THAT(store_->latest()->devices(), ElementsAre("cpu", "GPU-1", "GPU-2"));
  EXPECT_THAT(Moved(change.changes), Contains("cuda.cufft_plan_cache.max_size"));
  EXPECT_THAT(Moved(change.changes), ::testing::Not(Contains("cudnn.enabled")));
}

}  // namespace
}  // namespace backendd::node
