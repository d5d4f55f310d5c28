#include "server/node/flags/resolver.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace backendd::node {
namespace {

struct Ids {
  FlagId matmul_tf32 = FlagIdOf("cuda.matmul.allow_tf32");
  FlagId cudnn_tf32 = FlagIdOf("cudnn.allow_tf32");
  FlagId matmul_precision = FlagIdOf("float32_matmul_precision");
  FlagId debug_mode = FlagIdOf("deterministic_debug_mode");
  FlagId deterministic = FlagIdOf("deterministic_algorithms");
  FlagId warn_only = FlagIdOf("deterministic_algorithms.warn_only");
  FlagId fp16_reduction = FlagIdOf("cuda.matmul.allow_fp16_reduced_precision_reduction");
  FlagId fp16_split = FlagIdOf("cuda.matmul.allow_fp16_reduced_precision_reduction_split_k");
  FlagId bf16_reduction = FlagIdOf("cuda.matmul.allow_bf16_reduced_precision_reduction");
  FlagId bf16_split = FlagIdOf("cuda.matmul.allow_bf16_reduced_precision_reduction_split_k");
  FlagId blas = FlagIdOf("cuda.preferred_blas_library");
  FlagId cublas_workspace = FlagIdOf("cuda.cublas_workspace_size");
  FlagId cublaslt_workspace = FlagIdOf("cuda.cublaslt_workspace_size");
  FlagId blas_workspace = FlagIdOf("cuda.blas_workspace_size");
  FlagId plan_max = FlagIdOf("cuda.cufft_plan_cache.max_size");
};
const Ids& Id() {
  static const Ids* ids = new Ids();
  return *ids;
}

bool Applies(const OwnedEntry& owned, const View& view) {
  if (!owned.entry.warning.empty()) return false;  // malformed text decides nothing
  return !owned.entry.device.has_value() || owned.entry.device == view.device;
}

// Calls `each` with all entries that count at the view's place, in no order.
template <class Each>
void ForEachCandidate(FlagId flag, const View& view, Each each) {
  const auto take = [&](const Entries& entries) {
    for (const auto& owned : entries) {
      if (Applies(*owned, view)) each(*owned);
    }
  };
  take(view.shared.EntriesOf(flag));
  if (view.session == nullptr) return;
  const auto own = view.session->find(flag);
  if (own != view.session->end()) take(own->second);
}

const OwnedEntry* Winner(FlagId flag, const View& view) {
  const OwnedEntry* best = nullptr;
  ForEachCandidate(flag, view, [&](const OwnedEntry& owned) {
    if (best == nullptr || Outranks(owned, *best)) best = &owned;
  });
  return best;
}

// The value of the highest entry, else the built-in.
Reading Plain(FlagId flag, const View& view) {
  Reading reading;
  if (const OwnedEntry* winner = Winner(flag, view)) {
    reading.value = winner->entry.value;
    reading.layer = winner->entry.layer;
    reading.source = winner->entry.source;
    reading.since = winner->entry.revision;
    return reading;
  }
  BuiltIn built_in = BuiltInOf(flag, view.device, view.facts);
  reading.source = "built-in";
  if (!built_in.value.has_value())
    reading.unavailable = std::move(built_in.reason);
  else if (!built_in.reason.empty())
    absl::StrAppend(&reading.source, ": ", built_in.reason);
  reading.value = std::move(built_in.value);
  return reading;
}

// Off entries add up: a union of sets, a conjunction of bools. Named as the source is the highest
// entry that says what came out.
Reading Combined(FlagId flag, FlagCombine combine, const View& view) {
  std::set<std::string> names;
  bool on = true;
  ForEachCandidate(flag, view, [&](const OwnedEntry& owned) {
    if (const auto* list = std::get_if<TextList>(&owned.entry.value))
      names.insert(list->begin(), list->end());
    if (const bool* switched = std::get_if<bool>(&owned.entry.value)) on = on && *switched;
  });
  const OwnedEntry* best = nullptr;
  ForEachCandidate(flag, view, [&](const OwnedEntry& owned) {
    if (combine == FlagCombine::kAllTrue && owned.entry.value != FlagValue(on)) return;
    if (best == nullptr || Outranks(owned, *best)) best = &owned;
  });
  if (best == nullptr) return Plain(flag, view);
  Reading reading;
  if (combine == FlagCombine::kUnion)
    reading.value = TextList(names.begin(), names.end());
  else
    reading.value = on;
  reading.layer = best->entry.layer;
  reading.source = best->entry.source;
  reading.since = best->entry.revision;
  return reading;
}

Reading InTree(TreeNode node, const View& view) {
  PrecisionTree tree;
  std::array<const OwnedEntry*, kTreeNodes> winners{};
  for (std::optional<TreeNode> at = node; at.has_value(); at = ParentOf(*at)) {
    const int i = static_cast<int>(*at);
    winners[i] = Winner(FlagOf(*at), view);
    if (winners[i] != nullptr) tree[i] = {PrecisionFrom(winners[i]->entry.value), true};
  }
  const Walked walked = Walk(tree, node);
  const int own = static_cast<int>(node);
  const int decided = static_cast<int>(walked.decided_by.value_or(node));
  Reading reading;
  reading.value = ToValue(walked.value);
  reading.source = "built-in";
  if (winners[decided] != nullptr) {
    reading.layer = winners[decided]->entry.layer;
    reading.source = winners[decided]->entry.source;
    reading.since = winners[decided]->entry.revision;
  }
  reading.entry = ToValue(tree[own].value);
  reading.written = tree[own].written;
  if (reading.written && reading.entry != *reading.value) reading.requested = reading.entry;
  return reading;
}

// Takes value and origin of `from`; where it has none, its reason.
Reading Follow(const Reading& from, FlagValue value) {
  Reading reading;
  reading.value = std::move(value);
  reading.layer = from.layer;
  reading.source = from.source;
  reading.since = from.since;
  return reading;
}

// What the legacy reads and their check look at.
struct Legacy {
  Reading matmul, onednn, conv, rnn;
  std::string written_matmul = "highest";
  bool written_cudnn = true;
};
bool IsTf32(const Reading& reading) { return reading.value == FlagValue("tf32"); }
bool IsBf16(const Reading& reading) { return reading.value == FlagValue("bf16"); }

Legacy LookAt(const View& view) {
  Legacy legacy{InTree(TreeNode::kCudaMatmul, view), InTree(TreeNode::kMkldnnMatmul, view),
                InTree(TreeNode::kCudaConv, view), InTree(TreeNode::kCudaRnn, view)};
  if (const OwnedEntry* kept = Winner(Id().matmul_precision, view))
    legacy.written_matmul = std::get<std::string>(kept->entry.value);
  if (const OwnedEntry* kept = Winner(Id().cudnn_tf32, view))
    legacy.written_cudnn = std::get<bool>(kept->entry.value);
  return legacy;
}

bool Mixed(FlagId flag, const Legacy& at) {
  const bool highest = at.written_matmul == "highest";
  if (flag == Id().matmul_tf32) return highest == IsTf32(at.matmul);
  if (flag == Id().cudnn_tf32)
    return IsTf32(at.conv) != at.written_cudnn || IsTf32(at.rnn) != at.written_cudnn;
  return (IsTf32(at.matmul) && highest) || (IsBf16(at.onednn) && at.written_matmul != "medium") ||
         (IsTf32(at.onednn) && at.written_matmul != "high");
}

Reading LegacyRead(FlagId flag, const View& view) {
  const Legacy at = LookAt(view);
  Reading reading;
  if (flag == Id().matmul_tf32) {
    reading = Follow(at.matmul, IsTf32(at.matmul));
  } else if (flag == Id().cudnn_tf32) {
    const bool by_rnn = !IsTf32(at.conv) && IsTf32(at.rnn);
    reading = Follow(by_rnn ? at.rnn : at.conv, IsTf32(at.conv) || IsTf32(at.rnn));
  } else if (IsBf16(at.onednn)) {
    reading = Follow(at.onednn, "medium");
  } else if (IsTf32(at.matmul) || IsTf32(at.onednn)) {
    reading = Follow(IsTf32(at.matmul) ? at.matmul : at.onednn, "high");
  } else {
    reading = Follow(at.onednn.layer > at.matmul.layer ? at.onednn : at.matmul, "highest");
  }
  // Torch misses the last: a legacy value above highest beside a CUDA matmul that is not tf32.
  const bool missed =
      flag == Id().matmul_precision && at.written_matmul != "highest" && !IsTf32(at.matmul);
  reading.consistent = !Mixed(flag, at) && !missed;
  return reading;
}

Reading DebugMode(const View& view) {
  const Reading mode = Plain(Id().deterministic, view);
  const Reading warn = Plain(Id().warn_only, view);
  const bool on = std::get<bool>(*mode.value);
  const int64_t level = !on ? 0 : std::get<bool>(*warn.value) ? 1 : 2;
  return Follow(on && warn.layer > mode.layer ? warn : mode, level);
}

// Whether split-K may be used: the half of a pair that its flag's own reading does not show.
Reading SplitK(FlagId reduction, const View& view) {
  const Reading plain = Plain(reduction, view);
  const auto* pair = std::get_if<BoolPair>(&*plain.value);
  return Follow(plain, pair == nullptr || pair->second);
}

Reading BlasWorkspace(const View& view) {
  const Reading library = Plain(Id().blas, view);
  if (library.value == FlagValue("cublaslt")) return Resolve(Id().cublaslt_workspace, view);
  if (library.value != FlagValue("ck")) return Resolve(Id().cublas_workspace, view);
  Reading none = Follow(library, None{});
  none.value.reset();
  none.unavailable = "ck, the preferred library, uses no workspace";
  return none;
}

// The kept forms that read differently: a pair reads as its first half, a workspace text as bytes.
void ShowEffective(Reading* reading) {
  if (!reading->value.has_value()) return;
  std::optional<FlagValue> shown;
  if (const auto* pair = std::get_if<BoolPair>(&*reading->value)) shown = FlagValue(pair->first);
  if (const auto* text = std::get_if<std::string>(&*reading->value)) {
    if (const auto bytes = WorkspaceBytes(*text)) shown = FlagValue(*bytes);
  }
  if (shown.has_value()) reading->requested = std::exchange(reading->value, std::move(shown));
}

using Rank = std::tuple<int, bool, bool, int32_t, uint64_t>;
Rank RankOf(const OwnedEntry& owned) {
  return {static_cast<int>(owned.entry.layer), owned.entry.device.has_value(), owned.overlay(),
          owned.priority, owned.order};
}

}  // namespace

bool Outranks(const OwnedEntry& a, const OwnedEntry& b) { return RankOf(a) > RankOf(b); }

Reading Resolve(FlagId flag, const View& view) {
  std::string reason = UnavailableBecause(flag, view.device, view.facts);
  if (!reason.empty()) {
    Reading reading;
    reading.unavailable = std::move(reason);
    reading.source = "built-in";
    return reading;
  }
  if (const auto node = TreeNodeOf(flag)) return InTree(*node, view);
  const Ids& id = Id();
  if (flag == id.matmul_tf32 || flag == id.cudnn_tf32 || flag == id.matmul_precision)
    return LegacyRead(flag, view);
  if (flag == id.debug_mode) return DebugMode(view);
  if (flag == id.fp16_split) return SplitK(id.fp16_reduction, view);
  if (flag == id.bf16_split) return SplitK(id.bf16_reduction, view);
  if (flag == id.blas_workspace) return BlasWorkspace(view);
  const FlagCombine combine = Catalogue::Get().info(flag).combine;
  if (combine != FlagCombine::kHighest) return Combined(flag, combine, view);
  if (flag == id.plan_max && !view.device.has_value()) {
    // The node's cache is the first CUDA device's; there is one, or it were unavailable.
    return Plain(flag,
                 View{view.shared, view.session, view.facts.cuda_devices.front().id, view.facts});
  }
  Reading reading = Plain(flag, view);
  if (flag == id.fp16_reduction || flag == id.bf16_reduction || flag == id.cublas_workspace)
    ShowEffective(&reading);
  return reading;
}

bool IsMixed(FlagId flag, const View& view) {
  const Ids& id = Id();
  if (flag != id.matmul_tf32 && flag != id.cudnn_tf32 && flag != id.matmul_precision) return false;
  return Mixed(flag, LookAt(view));
}

std::vector<Explanation> ExplainLayers(FlagId flag, const View& view) {
  // A name for one other flag has that flag's layers.
  if (const auto targets = AliasTargets(flag); targets.size() == 1)
    return ExplainLayers(targets.front(), view);
  std::vector<const OwnedEntry*> sorted;
  const auto take = [&](const Entries& entries) {
    for (const auto& owned : entries) {
      if (!owned->entry.device.has_value() || !view.device.has_value() ||
          owned->entry.device == view.device)
        sorted.push_back(owned.get());
    }
  };
  take(view.shared.EntriesOf(flag));
  if (view.session != nullptr) {
    const auto own = view.session->find(flag);
    if (own != view.session->end()) take(own->second);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const OwnedEntry* a, const OwnedEntry* b) { return Outranks(*a, *b); });
  const OwnedEntry* winner = Winner(flag, view);
  BuiltIn built_in = BuiltInOf(flag, view.device, view.facts);
  std::vector<Explanation> lines;
  for (const OwnedEntry* owned : sorted) {
    Explanation line;
    line.entry = owned->entry;
    if (owned->lease) line.lease = owned->lease;
    if (owned->session) line.session = owned->session;
    line.winner = owned == winner;
    // Of malformed text: what is used instead.
    if (!line.entry.warning.empty() && built_in.value.has_value())
      line.entry.value = *built_in.value;
    lines.push_back(std::move(line));
  }
  if (built_in.value.has_value()) {
    Explanation line;
    line.entry.flag = flag;
    line.entry.value = std::move(*built_in.value);
    line.entry.source = "built-in";
    line.entry.reason = std::move(built_in.reason);
    line.winner = winner == nullptr;
    lines.push_back(std::move(line));
  }
  return lines;
}

const std::vector<FlagId>& DependantsOf(FlagId flag) {
  static const auto* dependants = [] {
    auto* made = new std::vector<std::vector<FlagId>>();
    const Catalogue& catalogue = Catalogue::Get();
    for (FlagId of = 0; of < catalogue.size(); ++of) made->push_back({of});
    const Ids& id = Id();
    const auto follows = [&](FlagId reader, FlagId of) { (*made)[of].push_back(reader); };
    for (int i = 0; i < kTreeNodes; ++i) {
      const auto above = static_cast<TreeNode>(i);
      for (int j = 0; j < kTreeNodes; ++j) {
        if (IsBelow(static_cast<TreeNode>(j), above))
          follows(FlagOf(static_cast<TreeNode>(j)), FlagOf(above));
      }
    }
    for (FlagId alias : {id.matmul_tf32, id.cudnn_tf32, id.matmul_precision, id.debug_mode}) {
      for (FlagId of = 0; of < catalogue.size(); ++of) {
        for (FlagId target : AliasTargets(alias)) {
          const std::vector<FlagId>& readers = (*made)[of];
          if (of != alias && std::count(readers.begin(), readers.end(), target) > 0 &&
              std::count(readers.begin(), readers.end(), alias) == 0)
            follows(alias, of);
        }
      }
    }
    follows(id.matmul_tf32, id.matmul_precision);  // which keeps the legacy value of both
    follows(id.fp16_split, id.fp16_reduction);
    follows(id.bf16_split, id.bf16_reduction);
    for (FlagId of : {id.blas, id.cublas_workspace, id.cublaslt_workspace})
      follows(id.blas_workspace, of);
    return made;
  }();
  return (*dependants)[flag];
}

std::optional<FlagId> LegacyKeeper(FlagId via) {
  const Ids& id = Id();
  if (via == id.matmul_tf32 || via == id.matmul_precision) return id.matmul_precision;
  if (via == id.cudnn_tf32) return id.cudnn_tf32;
  return std::nullopt;
}

}  // namespace backendd::node
