// einsum: a path over the operands, each meeting a gemm over strided views.
#include <algorithm>
#include <optional>

#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/part.h"
#include "shared/operation/einsum_path.h"

namespace backendd::worker {
namespace {

constexpr size_t kMostDimensions =
    2 * kMaxRank - 2;  // of an intermediate result: Nest holds two more

bool Has(const std::vector<int>& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// An operand or an intermediate result by its labels. Labels of extent 1 are left out.
struct Piece {
  int place = -1;       // an operand, or
  uint64_t offset = 0;  // in the workspace
  std::vector<int> labels;
  std::vector<int64_t> strides;

  int64_t stride(int label) const {
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == label) return strides[i];
    }
    return 0;
  }
  template <class T>
  T* At(const Call& call) const {
    return place >= 0 ? call.At<T>(place) : call.Work<T>(offset);
  }
};

template <class T>
class Contraction {
 public:
  Contraction(Builder& b, const EinsumLabels& labels) : b_(b), labels_(labels) {}

  absl::Status Build() {
    const int count = static_cast<int>(labels_.inputs.size());
    Piece y = View(count, labels_.output);
    std::vector<Piece> list;
    for (int i = 0; i < count; ++i) list.push_back(View(i, labels_.inputs[i]));
    if (Empty()) {
      const auto nest = MakeNest<1>({&b_.type(count)});
      steps_.push_back([nest, count](const Call& call) {
        T* const to = call.At<T>(count);
        Walk(nest, [&](const Nest<1>::Steps& at) {
          for (int64_t i = 0; i < nest.count; ++i) to[at[0] + i * nest.inner[0]] = T(0);
        });
        return absl::OkStatus();
      });
    } else if (count == 1) {
      RETURN_IF_ERROR(Sum(list[0], y));
    } else {
      const EinsumPath path = Choose(count);
      for (const auto& [i, j] : path.steps) {
        const Piece one = list[i], other = list[j];
        list.erase(list.begin() + j);
        list.erase(list.begin() + i);
        std::vector<int> keep = labels_.output;
        for (const Piece& rest : list)
          keep.insert(keep.end(), rest.labels.begin(), rest.labels.end());
        const bool last = list.empty();
        ASSIGN_OR_RETURN(Piece product, Multiply(one, other, keep, last ? &y : nullptr));
        list.push_back(std::move(product));
      }
      b_.Cost(path.cost, 0);
    }
    Choice& choice = b_.plan.choice;
    if (choice.library.empty()) choice.library = "own";
    b_.plan.kernel = [steps = std::move(steps_)](const Call& call) {
      for (const Kernel& step : steps) RETURN_IF_ERROR(step(call));
      return absl::OkStatus();
    };
    return absl::OkStatus();
  }

 private:
  int64_t Extent(int label) const { return labels_.extents[label]; }
  bool Empty() const {
    return std::any_of(std::begin(labels_.extents), std::end(labels_.extents),
                       [](int64_t extent) { return extent == 0; });
  }

  // A label that stands twice walks the diagonal; an extent of 1 repeats.
  Piece View(int place, const std::vector<int>& labels) const {
    Piece piece;
    piece.place = place;
    const TensorType& type = b_.type(place);
    for (size_t d = 0; d < labels.size(); ++d) {
      if (type.shape[d] == 1) continue;
      const auto at = std::find(piece.labels.begin(), piece.labels.end(), labels[d]);
      if (at != piece.labels.end()) {
        piece.strides[at - piece.labels.begin()] += type.strides[d];
        continue;
      }
      piece.labels.push_back(labels[d]);
      piece.strides.push_back(type.strides[d]);
    }
    return piece;
  }

  EinsumPath Choose(int count) {
    if (count == 2) return FindEinsumPath(labels_, EinsumStrategy::kLeftToRight);
    static const FlagId enabled = FlagIdOf("opt_einsum.enabled");
    static const FlagId strategy = FlagIdOf("opt_einsum.strategy");
    EinsumStrategy chosen = EinsumStrategy::kLeftToRight;
    std::string word = "left to right";
    if (b_.On(enabled)) {
      const std::string asked = b_.Text(strategy);
      const bool greedy = asked == "greedy" || count > kMostForOptimal;
      chosen = greedy ? EinsumStrategy::kGreedy : EinsumStrategy::kOptimal;
      word = greedy ? "greedy" : "optimal";
      if (asked == "optimal" && greedy) {
        b_.Unmet(
            strategy, std::string("greedy"), "SHAPE",
            absl::StrCat(count, " operands; the optimum is sought for up to ", kMostForOptimal));
      }
    }
    const EinsumPath path = FindEinsumPath(labels_, chosen);
    b_.plan.choice.algorithm = absl::StrCat("path ", ToText(path), " ", word);
    return path;
  }

  absl::StatusOr<Piece> Dense(const std::vector<int>& labels) {
    if (labels.size() > kMostDimensions) {
      return Error(Reason::kSizeTooLarge, absl::StrCat("an intermediate result has ", labels.size(),
                                                       " dimensions; at most ", kMostDimensions));
    }
    Piece piece;
    piece.labels = labels;
    piece.strides.assign(labels.size(), 0);
    std::optional<int64_t> count = 1;
    for (size_t i = labels.size(); i-- > 0;) {
      piece.strides[i] = *count;
      count = CheckedMul(*count, Extent(labels[i]));
      if (!count || *count > kMaxExtent) {
        return Error(Reason::kSizeTooLarge, "an intermediate result has 2^48 elements or more");
      }
    }
    piece.offset = b_.Reserve(*count * sizeof(T));
    return piece;
  }

  // to = from, summed over the labels that `to` has not.
  absl::Status Sum(const Piece& from, const Piece& to) {
    std::vector<int> labels = to.labels;
    for (int label : from.labels) {
      if (!Has(labels, label)) labels.push_back(label);
    }
    const bool sums = labels.size() > to.labels.size();
    const size_t kept = to.labels.size();
    if (labels.size() > kMostDimensions) {
      return Error(Reason::kSizeTooLarge, "an operand has too many labels");
    }
    // Kept and summed labels are two nests, so that a sum is kept in a register.
    Extents outer, inner, from_outer, from_inner, to_outer;
    for (size_t i = 0; i < labels.size(); ++i) {
      (i < kept ? outer : inner).push_back(Extent(labels[i]));
      (i < kept ? from_outer : from_inner).push_back(from.stride(labels[i]));
      if (i < kept) to_outer.push_back(to.stride(labels[i]));
    }
    const Nest<2> nest = MakeNest<2>(outer, {from_outer, to_outer});
    if (!sums) {
      steps_.push_back([from, to, nest](const Call& call) {
        Map1(nest, from.At<T>(call), to.At<T>(call), [](T value) { return value; });
        return absl::OkStatus();
      });
      return absl::OkStatus();
    }
    const Nest<1> summed = MakeNest<1>(inner, {from_inner});
    steps_.push_back([from, to, nest, summed](const Call& call) {
      using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
      const T* const x = from.At<T>(call);
      T* const y = to.At<T>(call);
      Walk(nest, [&](const Nest<2>::Steps& at) {
        for (int64_t i = 0; i < nest.count; ++i) {
          const T* const base = x + at[0] + i * nest.inner[0];
          Wide sum = 0;
          Walk(summed, [&](const Nest<1>::Steps& in) {
            for (int64_t k = 0; k < summed.count; ++k) sum += base[in[0] + k * summed.inner[0]];
          });
          y[at[1] + i * nest.inner[1]] = static_cast<T>(sum);
        }
      });
      return absl::OkStatus();
    });
    return absl::OkStatus();
  }

  // Without the labels that neither the other one nor anybody later wants.
  absl::StatusOr<Piece> Reduced(const Piece& piece, const Piece& other,
                                const std::vector<int>& keep) {
    std::vector<int> left;
    for (int label : piece.labels) {
      if (Has(other.labels, label) || Has(keep, label)) left.push_back(label);
    }
    if (left.size() == piece.labels.size()) return piece;
    ASSIGN_OR_RETURN(Piece to, Dense(left));
    RETURN_IF_ERROR(Sum(piece, to));
    return to;
  }

  // The labels as one dimension of the piece: its extent and stride; nullopt: it must be copied.
  std::optional<std::pair<int64_t, int64_t>> Merge(const Piece& piece,
                                                   const std::vector<int>& labels) const {
    int64_t extent = 1, stride = 1;
    for (size_t i = labels.size(); i-- > 0;) {
      const int64_t own = piece.stride(labels[i]);
      if (i + 1 == labels.size()) {
        stride = own;
      } else if (own != stride * extent) {
        return std::nullopt;
      }
      extent *= Extent(labels[i]);
    }
    return std::make_pair(extent, stride);
  }

  // [batch..., rows, columns] of a piece; dense where its strides do not allow that.
  absl::StatusOr<TensorType> Matrix(Piece* piece, const std::vector<int>& batch,
                                    const std::vector<int>& rows, const std::vector<int>& columns) {
    auto r = Merge(*piece, rows), c = Merge(*piece, columns);
    if (!r || !c) {
      std::vector<int> order = batch;
      order.insert(order.end(), rows.begin(), rows.end());
      order.insert(order.end(), columns.begin(), columns.end());
      ASSIGN_OR_RETURN(Piece dense, Dense(order));
      RETURN_IF_ERROR(Sum(*piece, dense));
      *piece = dense;
      r = Merge(*piece, rows);
      c = Merge(*piece, columns);
      b_.plan.choice.copied_bytes += r->first * c->first * sizeof(T);
    }
    TensorType type;
    type.dtype = b_.type(0).dtype;
    for (int label : batch) {
      type.shape.push_back(Extent(label));
      type.strides.push_back(piece->stride(label));
    }
    for (const auto& [extent, stride] : {*r, *c}) {
      type.shape.push_back(extent);
      type.strides.push_back(stride);
    }
    return type;
  }

  // The product of two, into `target` where it is the last.
  absl::StatusOr<Piece> Multiply(const Piece& first, const Piece& second,
                                 const std::vector<int>& keep, const Piece* target) {
    ASSIGN_OR_RETURN(Piece a, Reduced(first, second, keep));
    ASSIGN_OR_RETURN(Piece b, Reduced(second, first, keep));
    std::vector<int> batch, rows, columns, inner;
    auto by_stride = [](const Piece& piece) {
      std::vector<int> labels = piece.labels;
      std::stable_sort(labels.begin(), labels.end(),
                       [&](int x, int y) { return piece.stride(x) > piece.stride(y); });
      return labels;
    };
    for (int label : by_stride(a)) {
      const bool shared = Has(b.labels, label), kept = Has(keep, label);
      (!shared ? rows : kept ? batch : inner).push_back(label);
    }
    for (int label : by_stride(b)) {
      if (!Has(a.labels, label)) columns.push_back(label);
    }
    std::vector<int> order = batch;
    order.insert(order.end(), rows.begin(), rows.end());
    order.insert(order.end(), columns.begin(), columns.end());
    if (inner.empty()) return Spread(a, b, order, target);
    Piece y;
    const bool direct = target != nullptr && Merge(*target, rows) && Merge(*target, columns);
    if (direct) {
      y = *target;
    } else {
      ASSIGN_OR_RETURN(y, Dense(order));
    }
    ASSIGN_OR_RETURN(const TensorType a_type, Matrix(&a, batch, rows, inner));
    ASSIGN_OR_RETURN(const TensorType b_type, Matrix(&b, batch, inner, columns));
    ASSIGN_OR_RETURN(const TensorType y_type, Matrix(&y, batch, rows, columns));
    ASSIGN_OR_RETURN(Part gemm, Part::Build(b_, GemmSpec(a_type, b_type, y_type)));
    if (b_.plan.choice.algorithm.empty()) b_.plan.choice.algorithm = gemm.choice().algorithm;
    steps_.push_back([a, b, y, gemm = std::move(gemm)](const Call& call) {
      return gemm.Multiply(call, a.At<T>(call), b.At<T>(call), y.At<T>(call));
    });
    if (target == nullptr || direct) return y;
    RETURN_IF_ERROR(Sum(y, *target));
    return *target;
  }

  // A product without a sum: element by element, broadcasting.
  absl::StatusOr<Piece> Spread(const Piece& a, const Piece& b, const std::vector<int>& order,
                               const Piece* target) {
    Piece y;
    if (target != nullptr) {
      y = *target;
    } else {
      ASSIGN_OR_RETURN(y, Dense(order));
    }
    Extents shape;
    std::array<Extents, 3> strides;
    for (int label : y.labels) {
      shape.push_back(Extent(label));
      strides[0].push_back(a.stride(label));
      strides[1].push_back(b.stride(label));
      strides[2].push_back(y.stride(label));
    }
    const Nest<3> nest = MakeNest<3>(shape, strides);
    steps_.push_back([a, b, y, nest](const Call& call) {
      Map2(nest, a.At<T>(call), b.At<T>(call), y.At<T>(call), [](T l, T r) { return l * r; });
      return absl::OkStatus();
    });
    return y;
  }

  Builder& b_;
  const EinsumLabels& labels_;
  std::vector<Kernel> steps_;
};

absl::Status BuildEinsum(Builder& b) {
  std::vector<Extents> shapes;
  for (size_t i = 0; i + 1 < b.spec.operands.size(); ++i) shapes.push_back(b.type(i).shape);
  EinsumLabels labels;
  Reason reason;
  const std::string fault =
      ReadEinsum(b.attributes<EinsumAttributes>().equation, shapes, &labels, &reason);
  if (!fault.empty()) return Error(reason, fault);  // Infer has said so
  return ByNumber(b, [&](auto zero) { return Contraction<decltype(zero)>(b, labels).Build(); });
}

constexpr KernelRow kRows[] = {{OpKind::kEinsum, BuildEinsum}};

}  // namespace

absl::Span<const KernelRow> EinsumKernels() { return kRows; }

}  // namespace backendd::worker
