// The fp32 precision tree: operation asks back end, back end asks generic. Pure; the daemon walks
// it for snapshots, the worker for the flags of a single call.
#ifndef BACKENDD_SERVER_FLAGS_PRECISION_H_
#define BACKENDD_SERVER_FLAGS_PRECISION_H_

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/flags/catalogue.h"
#include "shared/flag_value.h"

namespace backendd {

enum class Precision : uint8_t { kNone, kIeee, kTf32, kBf16 };
FlagValue ToValue(Precision precision);           // None, "ieee", "tf32", "bf16"
Precision PrecisionFrom(const FlagValue& value);  // of a value that Normalise has seen

// The nine entries. Parents come before their children.
enum class TreeNode : uint8_t {
  kGeneric,       // fp32_precision
  kCuda,          // cudnn.fp32_precision: the whole CUDA back end
  kCudaMatmul,    // cuda.matmul.fp32_precision
  kCudaConv,      // cudnn.conv.fp32_precision
  kCudaRnn,       // cudnn.rnn.fp32_precision
  kMkldnn,        // mkldnn.fp32_precision
  kMkldnnMatmul,  // mkldnn.matmul.fp32_precision
  kMkldnnConv,    // mkldnn.conv.fp32_precision
  kMkldnnRnn,     // mkldnn.rnn.fp32_precision
};
inline constexpr int kTreeNodes = 9;

std::optional<TreeNode> TreeNodeOf(FlagId flag);
FlagId FlagOf(TreeNode node);
std::optional<TreeNode> ParentOf(TreeNode node);
bool IsBelow(TreeNode node, TreeNode ancestor);

struct PrecisionEntry {
  Precision value = Precision::kNone;
  bool written = false;  // by any layer above the built-in
};
using PrecisionTree = std::array<PrecisionEntry, kTreeNodes>;

struct Walked {
  Precision value = Precision::kNone;
  // Whose entry decided; nullopt: nobody's, or the built-in tf32 of cuDNN's leaves.
  std::optional<TreeNode> decided_by;
  std::vector<TreeNode> asked;  // in order, the node itself first
};
Walked Walk(const PrecisionTree& tree, TreeNode node);

// Names that stand for other flags: cuda.matmul.allow_tf32, cudnn.allow_tf32,
// float32_matmul_precision, deterministic_debug_mode.
bool IsAlias(FlagId flag);
absl::Span<const FlagId> AliasTargets(FlagId alias);
// What writing `value` (normalised) to the alias writes, in AliasTargets' order.
std::vector<std::pair<FlagId, FlagValue>> ExpandAlias(FlagId alias, const FlagValue& value);

}  // namespace backendd

#endif  // BACKENDD_SERVER_FLAGS_PRECISION_H_
