#include "server/flags/precision.h"

#include <array>

#include "tests/unit/flags/store_fixture.h"

namespace backendd::node {
namespace {

// The truth table of the precision tree: one line per history from a fresh node.
struct History {
  const char* name;
  Values writes;
  // allow_tf32, cudnn.allow_tf32, float32_matmul_precision; "mixed": the strict read is marked.
  std::array<const char*, 3> legacy;
  // cuda matmul, conv, rnn, all; mkldnn matmul; generic
  std::array<const char*, 6> reads;
};

const Values kNothing = {};
const char kMatmulTf32[] = "cuda.matmul.allow_tf32";
const char kCudnnTf32[] = "cudnn.allow_tf32";
const char kPrecision[] = "float32_matmul_precision";
const char kGeneric[] = "fp32_precision";
const char kCuda[] = "cudnn.fp32_precision";
const char kMatmul[] = "cuda.matmul.fp32_precision";
const char kConv[] = "cudnn.conv.fp32_precision";
const char kRnn[] = "cudnn.rnn.fp32_precision";

const History kHistories[] = {
    {"fresh",
     kNothing,
     {"false", "true", "highest"},
     {"none", "tf32", "tf32", "none", "none", "none"}},
    {"matmul true",
     {{kMatmulTf32, true}},
     {"true", "true", "high"},
     {"tf32", "tf32", "tf32", "none", "none", "none"}},
    {"matmul true, false",
     {{kMatmulTf32, true}, {kMatmulTf32, false}},
     {"false", "true", "highest"},
     {"ieee", "tf32", "tf32", "none", "none", "none"}},
    {"highest",
     {{kPrecision, "highest"}},
     {"false", "true", "highest"},
     {"ieee", "tf32", "tf32", "none", "ieee", "none"}},
    {"high",
     {{kPrecision, "high"}},
     {"true", "true", "high"},
     {"tf32", "tf32", "tf32", "none", "tf32", "none"}},
    {"medium",
     {{kPrecision, "medium"}},
     {"true", "true", "medium"},
     {"tf32", "tf32", "tf32", "none", "bf16", "none"}},
    {"generic tf32",
     {{kGeneric, "tf32"}},
     {"mixed", "true", "mixed"},
     {"tf32", "tf32", "tf32", "tf32", "tf32", "tf32"}},
    {"generic ieee",
     {{kGeneric, "ieee"}},
     {"false", "mixed", "highest"},
     {"ieee", "ieee", "ieee", "ieee", "ieee", "ieee"}},
    {"generic bf16",
     {{kGeneric, "bf16"}},
     {"false", "mixed", "mixed"},
     {"none", "none", "none", "none", "bf16", "bf16"}},
    {"cuda tf32",
     {{kCuda, "tf32"}},
     {"mixed", "true", "mixed"},
     {"tf32", "tf32", "tf32", "tf32", "none", "none"}},
    {"cuda ieee",
     {{kCuda, "ieee"}},
     {"false", "mixed", "highest"},
     {"ieee", "ieee", "ieee", "ieee", "none", "none"}},
    {"cuda ieee, generic bf16",
     {{kCuda, "ieee"}, {kGeneric, "bf16"}},
     {"false", "mixed", "mixed"},
     {"ieee", "ieee", "ieee", "ieee", "bf16", "bf16"}},
    {"cudnn true, generic ieee",
     {{kCudnnTf32, true}, {kGeneric, "ieee"}},
     {"false", "true", "highest"},
     {"ieee", "tf32", "tf32", "ieee", "ieee", "ieee"}},
    {"conv none, generic none",
     {{kConv, None{}}, {kGeneric, None{}}},
     {"false", "mixed", "highest"},
     {"none", "none", "tf32", "none", "none", "none"}},
    {"matmul tf32",
     {{kMatmul, "tf32"}},
     {"mixed", "true", "mixed"},
     {"tf32", "tf32", "tf32", "none", "none", "none"}},
    // Torch reads high here without a word; the node says that it is inconsistent.
    {"high, matmul ieee",
     {{kPrecision, "high"}, {kMatmul, "ieee"}},
     {"mixed", "true", "missed"},
     {"ieee", "tf32", "tf32", "none", "tf32", "none"}},
    {"conv ieee",
     {{kConv, "ieee"}},
     {"false", "mixed", "highest"},
     {"none", "ieee", "tf32", "none", "none", "none"}},
    {"conv ieee, rnn ieee",
     {{kConv, "ieee"}, {kRnn, "ieee"}},
     {"false", "mixed", "highest"},
     {"none", "ieee", "ieee", "none", "none", "none"}},
    {"cudnn false",
     {{kCudnnTf32, false}},
     {"false", "false", "highest"},
     {"none", "none", "none", "none", "none", "none"}},
    {"generic tf32, cudnn false",
     {{kGeneric, "tf32"}, {kCudnnTf32, false}},
     {"mixed", "mixed", "mixed"},
     {"tf32", "tf32", "tf32", "tf32", "tf32", "tf32"}},
    {"generic tf32, matmul false",
     {{kGeneric, "tf32"}, {kMatmulTf32, false}},
     {"false", "true", "mixed"},
     {"ieee", "tf32", "tf32", "tf32", "tf32", "tf32"}},
};

class PrecisionReads : public StoreTest {};

TEST_F(PrecisionReads, FollowsTheTruthTableInEveryHistory) {
  const char* kReads[] = {kMatmul, kConv, kRnn, kCuda, "mkldnn.matmul.fp32_precision", kGeneric};
  const char* kLegacy[] = {kMatmulTf32, kCudnnTf32, kPrecision};
  for (const History& history : kHistories) {
    SCOPED_TRACE(history.name);
    Start();
    for (const auto& write : history.writes) Set({write});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(ToText(Get(kReads[i])), history.reads[i]) << kReads[i];
    // The same history in a COMPAT session, which fails where torch raises.
    const SessionId compat(1);
    Start();
    store_->SetSemantics(compat, true);
    Done();
    for (const auto& write : history.writes) Set(compat, {write});
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(ToText(GetFor(compat, kReads[i])), history.reads[i]) << kReads[i];
    for (int i = 0; i < 3; ++i) {
      const std::string expected = history.legacy[i];
      const FlagValue read = GetFor(compat, kLegacy[i]);
      if (expected == "mixed") {
        EXPECT_EQ(ToText(read), "PRECISION_MIXED") << kLegacy[i];
        continue;
      }
      if (expected != "missed") EXPECT_EQ(ToText(read), expected) << kLegacy[i];
      const auto reading = store_->latest()->ReadFor(FlagIdOf(kLegacy[i]), {}, compat);
      ASSERT_OK(reading);
      EXPECT_EQ(reading->consistent, expected != "missed") << kLegacy[i];
    }
  }
}

TEST_F(PrecisionReads, SaysFalseWhereACompatReadWouldFail) {
  for (const History& history : kHistories) {
    SCOPED_TRACE(history.name);
    Start();
    for (const auto& write : history.writes) Set({write});
    const char* kLegacy[] = {kMatmulTf32, kCudnnTf32, kPrecision};
    for (int i = 0; i < 3; ++i) {
      const std::string expected = history.legacy[i];
      EXPECT_EQ(Read(kLegacy[i]).consistent, expected != "mixed" && expected != "missed")
          << kLegacy[i];
    }
  }
}

TEST_F(PrecisionReads, GivesTheBuiltInTf32BackWhenTheLastWriterOfALeafGoes) {
  Lease(1, {{kConv, None{}}});
  EXPECT_EQ(Get(kConv), FlagValue(None{}));
  Release(1);
  EXPECT_EQ(Get(kConv), FlagValue("tf32"));
  EXPECT_FALSE(Read(kConv).written);
}

TEST_F(PrecisionReads, ShowsWhoDecidedAndWhatTheLeafItselfAskedFor) {
  Set({{kMatmul, None{}}});
  Lease(1, {{kGeneric, "ieee"}});
  const Reading reading = Read(kMatmul);
  EXPECT_EQ(reading.value, FlagValue("ieee"));
  EXPECT_EQ(reading.layer, Layer::kLease);
  EXPECT_EQ(reading.requested, FlagValue(None{}));
  EXPECT_TRUE(reading.written);
}

TEST(Walk, AsksUpwardAndNamesWhoAnswered) {
  PrecisionTree tree;
  PrecisionTree::value_type& generic = tree[static_cast<int>(TreeNode::kGeneric)];
  generic = {Precision::kBf16, true};
  const Walked onednn = Walk(tree, TreeNode::kMkldnnConv);
  EXPECT_EQ(onednn.value, Precision::kBf16);
  EXPECT_EQ(onednn.decided_by, TreeNode::kGeneric);
  EXPECT_THAT(onednn.asked,
              ::testing::ElementsAre(TreeNode::kMkldnnConv, TreeNode::kMkldnn, TreeNode::kGeneric));
  EXPECT_EQ(Walk(tree, TreeNode::kCudaRnn).value, Precision::kNone);  // CUDA has no bf16
  generic = {};
  EXPECT_EQ(Walk(tree, TreeNode::kCudaRnn).value, Precision::kTf32);
  EXPECT_EQ(Walk(tree, TreeNode::kCudaRnn).decided_by, std::nullopt);
}

}  // namespace
}  // namespace backendd::node
