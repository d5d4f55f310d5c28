#include "server/flags/precision.h"

#include <string>

namespace backendd {
namespace {

constexpr absl::string_view kWords[] = {"none", "ieee", "tf32", "bf16"};

struct NodeRow {
  absl::string_view flag;
  std::optional<TreeNode> parent;
  bool cuda = false;           // knows no bf16
  bool built_in_tf32 = false;  // where nobody wrote the leaf and the walk found nothing
};
constexpr NodeRow kTree[kTreeNodes] = {
    {"fp32_precision", std::nullopt},
    {"cudnn.fp32_precision", TreeNode::kGeneric, true},
    {"cuda.matmul.fp32_precision", TreeNode::kCuda, true},
    {"cudnn.conv.fp32_precision", TreeNode::kCuda, true, true},
    {"cudnn.rnn.fp32_precision", TreeNode::kCuda, true, true},
    {"mkldnn.fp32_precision", TreeNode::kGeneric},
    {"mkldnn.matmul.fp32_precision", TreeNode::kMkldnn},
    {"mkldnn.conv.fp32_precision", TreeNode::kMkldnn},
    {"mkldnn.rnn.fp32_precision", TreeNode::kMkldnn},
};
const NodeRow& RowOf(TreeNode node) { return kTree[static_cast<int>(node)]; }

// Ids by node and nodes by id, looked up once.
struct Ids {
  std::array<FlagId, kTreeNodes> of_node;
  std::vector<std::optional<TreeNode>> of_flag;
};
const Ids& TreeIds() {
  static const Ids* ids = [] {
    auto* made = new Ids();
    made->of_flag.resize(Catalogue::Get().size());
    for (int i = 0; i < kTreeNodes; ++i) {
      made->of_node[i] = FlagIdOf(kTree[i].flag);
      made->of_flag[made->of_node[i]] = static_cast<TreeNode>(i);
    }
    return made;
  }();
  return *ids;
}

// What each word of an alias writes to its targets.
struct AliasRow {
  FlagId alias;
  std::vector<FlagId> targets;
  std::vector<std::pair<FlagValue, std::vector<FlagValue>>> writes;
};
const std::vector<AliasRow>& Aliases() {
  static const auto* rows = new std::vector<AliasRow>{
      {FlagIdOf("cuda.matmul.allow_tf32"),
       {FlagIdOf("cuda.matmul.fp32_precision")},
       {{true, {"tf32"}}, {false, {"ieee"}}}},
      {FlagIdOf("cudnn.allow_tf32"),
       {FlagIdOf("cudnn.conv.fp32_precision"), FlagIdOf("cudnn.rnn.fp32_precision")},
       {{true, {"tf32", "tf32"}}, {false, {None{}, None{}}}}},
      {FlagIdOf("float32_matmul_precision"),
       {FlagIdOf("cuda.matmul.fp32_precision"), FlagIdOf("mkldnn.matmul.fp32_precision")},
       {{"highest", {"ieee", "ieee"}}, {"high", {"tf32", "tf32"}}, {"medium", {"tf32", "bf16"}}}},
      {FlagIdOf("deterministic_debug_mode"),
       {FlagIdOf("deterministic_algorithms"), FlagIdOf("deterministic_algorithms.warn_only")},
       {{int64_t{0}, {false, false}}, {int64_t{1}, {true, true}}, {int64_t{2}, {true, false}}}},
  };
  return *rows;
}
const AliasRow* AliasOf(FlagId flag) {
  for (const AliasRow& row : Aliases()) {
    if (row.alias == flag) return &row;
  }
  return nullptr;
}

}  // namespace

FlagValue ToValue(Precision precision) {
  if (precision == Precision::kNone) return None{};
  const absl::string_view word = kWords[static_cast<int>(precision)];
  return std::string(word.data(), word.size());
}

Precision PrecisionFrom(const FlagValue& value) {
  const auto* word = std::get_if<std::string>(&value);
  for (int i = 1; word != nullptr && i < 4; ++i) {
    if (*word == kWords[i]) return static_cast<Precision>(i);
  }
  return Precision::kNone;
}

std::optional<TreeNode> TreeNodeOf(FlagId flag) { return TreeIds().of_flag[flag]; }
FlagId FlagOf(TreeNode node) { return TreeIds().of_node[static_cast<int>(node)]; }
std::optional<TreeNode> ParentOf(TreeNode node) { return RowOf(node).parent; }

bool IsBelow(TreeNode node, TreeNode ancestor) {
  for (auto above = ParentOf(node); above.has_value(); above = ParentOf(*above)) {
    if (*above == ancestor) return true;
  }
  return false;
}

Walked Walk(const PrecisionTree& tree, TreeNode node) {
  Walked walked;
  for (std::optional<TreeNode> at = node; at.has_value(); at = ParentOf(*at)) {
    walked.asked.push_back(*at);
    walked.value = tree[static_cast<int>(*at)].value;
    if (walked.value == Precision::kNone) continue;
    walked.decided_by = at;
    break;
  }
  const NodeRow& row = RowOf(node);
  if (!walked.decided_by.has_value() && row.built_in_tf32 && !tree[static_cast<int>(node)].written)
    walked.value = Precision::kTf32;
  // A bf16 from above is no precision of CUDA's; asked before the built-in tf32 could count, it
  // switches that off.
  if (row.cuda && walked.value == Precision::kBf16) walked.value = Precision::kNone;
  return walked;
}

bool IsAlias(FlagId flag) { return AliasOf(flag) != nullptr; }

absl::Span<const FlagId> AliasTargets(FlagId alias) {
  const AliasRow* row = AliasOf(alias);
  if (row == nullptr) return {};
  return row->targets;
}

std::vector<std::pair<FlagId, FlagValue>> ExpandAlias(FlagId alias, const FlagValue& value) {
  std::vector<std::pair<FlagId, FlagValue>> writes;
  const AliasRow* row = AliasOf(alias);
  if (row == nullptr) return writes;
  for (const auto& [word, values] : row->writes) {
    if (word != value) continue;
    for (size_t i = 0; i < values.size(); ++i) writes.emplace_back(row->targets[i], values[i]);
  }
  return writes;
}

}  // namespace backendd
