#include "shared/operation/einsum_path.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace backendd {
namespace {

using Set = uint64_t;  // of labels
static_assert(kEinsumLabels <= 64);

Set SetOf(const std::vector<int>& labels) {
  Set set = 0;
  for (int label : labels) set |= Set{1} << label;
  return set;
}

class Search {
 public:
  explicit Search(const EinsumLabels& labels) : labels_(labels), output_(SetOf(labels.output)) {
    for (const auto& input : labels.inputs) terms_.push_back(SetOf(input));
  }

  EinsumPath LeftToRight() {
    EinsumPath path;
    while (terms_.size() > 1) {
      const bool first = path.steps.empty();
      Take(&path, 0, first ? 1 : static_cast<int>(terms_.size()) - 1);
    }
    return path;
  }

  // Of pairs that share a label the one whose product grows least over its operands; outer products
  // when none is left, the smallest first.
  EinsumPath Greedy() {
    EinsumPath path;
    while (terms_.size() > 1) {
      const int count = static_cast<int>(terms_.size());
      std::pair<int, int> best{-1, -1};
      bool best_shares = false;
      double best_growth = 0;
      for (int i = 0; i < count; ++i) {
        for (int j = i + 1; j < count; ++j) {
          const Set both = terms_[i] | terms_[j];
          const bool shares = (terms_[i] & terms_[j]) != 0;
          const double growth = shares ? Size(both & Kept(i, j)) - Size(terms_[i]) - Size(terms_[j])
                                       : Size(both & Kept(i, j));
          if (best.first >= 0 && (shares != best_shares ? best_shares : growth >= best_growth)) {
            continue;
          }
          best = {i, j};
          best_shares = shares;
          best_growth = growth;
        }
      }
      Take(&path, best.first, best.second);
    }
    return path;
  }

  // The cheapest tree over every subset of the operands.
  EinsumPath Optimal() {
    const int count = static_cast<int>(terms_.size());
    const uint32_t all = (uint32_t{1} << count) - 1;
    std::vector<Set> inside(all + 1, 0), result(all + 1, 0);
    for (uint32_t s = 1; s <= all; ++s) {
      for (int i = 0; i < count; ++i) {
        if (s >> i & 1) inside[s] |= terms_[i];
      }
    }
    for (uint32_t s = 1; s <= all; ++s) {
      // An operand's own labels stay until it meets another one.
      result[s] = (s & (s - 1)) == 0 ? inside[s] : inside[s] & (output_ | inside[all & ~s]);
    }
    std::vector<double> cost(all + 1, std::numeric_limits<double>::infinity());
    std::vector<uint32_t> half(all + 1, 0);
    for (int i = 0; i < count; ++i) cost[uint32_t{1} << i] = 0;
    for (uint32_t s = 1; s <= all; ++s) {
      if ((s & (s - 1)) == 0) continue;
      const uint32_t lowest = s & -s;  // always in the first half: each pair once
      for (uint32_t one = (s - 1) & s; one != 0; one = (one - 1) & s) {
        if ((one & lowest) == 0) continue;
        const uint32_t other = s & ~one;
        const double below = cost[one] + cost[other];
        if (below >= cost[s]) continue;
        const double total = below + Flops(result[one] | result[other], result[s]);
        if (total < cost[s]) {
          cost[s] = total;
          half[s] = one;
        }
      }
    }
    EinsumPath path;
    std::vector<uint32_t> list;
    for (int i = 0; i < count; ++i) list.push_back(uint32_t{1} << i);
    Emit(half, all, &list, &path);
    path.cost = cost[all];
    return path;
  }

 private:
  double Size(Set set) const {
    double size = 1;
    for (; set != 0; set &= set - 1) {
      size *= static_cast<double>(labels_.extents[__builtin_ctzll(set)]);
    }
    return size;
  }
  double Flops(Set both, Set kept) const { return Size(both) * ((both & ~kept) != 0 ? 2 : 1); }
  // What the output and all terms but these two need.
  Set Kept(int i, int j) const {
    Set kept = output_;
    for (int k = 0; k < static_cast<int>(terms_.size()); ++k) {
      if (k != i && k != j) kept |= terms_[k];
    }
    return kept;
  }
  void Take(EinsumPath* path, int i, int j) {
    const Set both = terms_[i] | terms_[j], kept = both & Kept(i, j);
    path->cost += Flops(both, kept);
    path->steps.emplace_back(i, j);
    terms_.erase(terms_.begin() + j);
    terms_.erase(terms_.begin() + i);
    terms_.push_back(kept);
  }
  void Emit(const std::vector<uint32_t>& half, uint32_t s, std::vector<uint32_t>* list,
            EinsumPath* path) {
    if ((s & (s - 1)) == 0) return;
    const uint32_t one = half[s], other = s & ~one;
    Emit(half, one, list, path);
    Emit(half, other, list, path);
    auto at = [list](uint32_t set) {
      return static_cast<int>(std::find(list->begin(), list->end(), set) - list->begin());
    };
    const auto [low, high] = std::minmax({at(one), at(other)});
    path->steps.emplace_back(low, high);
    list->erase(list->begin() + high);
    list->erase(list->begin() + low);
    list->push_back(s);
  }

  const EinsumLabels& labels_;
  const Set output_;
  std::vector<Set> terms_;
};

}  // namespace

EinsumPath FindEinsumPath(const EinsumLabels& labels, EinsumStrategy strategy) {
  Search search(labels);
  switch (strategy) {
    case EinsumStrategy::kOptimal:
      return search.Optimal();
    case EinsumStrategy::kGreedy:
      return search.Greedy();
    case EinsumStrategy::kLeftToRight:
      break;
  }
  return search.LeftToRight();
}

std::string ToText(const EinsumPath& path) {
  std::string text;
  for (const auto& [i, j] : path.steps) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "(", i, ",", j, ")");
  }
  return text;
}

}  // namespace backendd
