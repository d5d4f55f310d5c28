// softmax, layer_norm, batch_norm, reduction, cross_entropy, embedding. Sums are kept in double.
#include <cmath>
#include <limits>

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"

namespace backendd::worker {
namespace {

// Calls f(offsets) for every index of the outer dimensions.
template <size_t N, class F>
void ForEach(const Nest<N>& nest, F&& f) {
  Walk(nest, [&](typename Nest<N>::Steps at) {
    for (int64_t i = 0; i < nest.count; ++i) {
      f(at);
      for (size_t k = 0; k < N; ++k) at[k] += nest.inner[k];
    }
  });
}

// A view without one dimension: the rows along it.
struct Rows {
  Extents shape, strides;
  int64_t count = 1, step = 1;  // along the dimension
};
Rows Along(const TensorType& type, int dim) {
  Rows rows{type.shape, type.strides};
  if (type.shape.empty()) return rows;
  rows.count = type.shape[dim];
  rows.step = type.strides[dim];
  rows.shape.erase(rows.shape.begin() + dim);
  rows.strides.erase(rows.strides.begin() + dim);
  return rows;
}

void Note(Builder& b, absl::string_view algorithm, double flops_each) {
  b.plan.choice.library = "own";
  b.plan.choice.algorithm = std::string(algorithm.data(), algorithm.size());
  double n = 0, bytes = 0;
  for (const OperandSpec& operand : b.spec.operands) {
    if (!operand.present) continue;
    n = std::max<double>(n, operand.type.elements());
    bytes += operand.type.elements() * SizeOf(operand.type.dtype);
  }
  b.Cost(n * flops_each, bytes);
}

template <class T>
Kernel MakeSoftmax(const Builder& b) {
  const auto& a = b.attributes<SoftmaxAttributes>();
  const Rows x = Along(b.type(0), a.dim), y = Along(b.type(1), a.dim);
  const auto nest = MakeNest<2>(x.shape, {x.strides, y.strides});
  return [nest, n = x.count, sx = x.step, sy = y.step, log = a.log](const Call& call) {
    ForEach(nest, [&](const Nest<2>::Steps& at) {
      const T* const in = call.At<T>(0) + at[0];
      T* const out = call.At<T>(1) + at[1];
      if (n == 0) return;
      T top = in[0];
      for (int64_t i = 1; i < n; ++i) top = in[i * sx] > top ? in[i * sx] : top;
      double sum = 0;
      if (log) {
        for (int64_t i = 0; i < n; ++i) sum += std::exp(in[i * sx] - top);
        const T rest = static_cast<T>(std::log(sum));
        for (int64_t i = 0; i < n; ++i) out[i * sy] = in[i * sx] - top - rest;
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const T value = std::exp(in[i * sx] - top);
        out[i * sy] = value;
        sum += value;
      }
      const T scale = static_cast<T>(1 / sum);
      for (int64_t i = 0; i < n; ++i) out[i * sy] *= scale;
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeSoftmaxGradient(const Builder& b) {
  const auto& a = b.attributes<SoftmaxAttributes>();
  const Rows y = Along(b.type(0), a.dim), dy = Along(b.type(1), a.dim),
             dx = Along(b.type(2), a.dim);
  const auto nest = MakeNest<3>(y.shape, {y.strides, dy.strides, dx.strides});
  return
      [nest, n = y.count, sy = y.step, sg = dy.step, sx = dx.step, log = a.log](const Call& call) {
        ForEach(nest, [&](const Nest<3>::Steps& at) {
          const T* const value = call.At<T>(0) + at[0];
          const T* const grad = call.At<T>(1) + at[1];
          T* const out = call.At<T>(2) + at[2];
          double sum = 0;
          for (int64_t i = 0; i < n; ++i) {
            sum += log ? grad[i * sg] : double(grad[i * sg]) * value[i * sy];
          }
          const T all = static_cast<T>(sum);
          for (int64_t i = 0; i < n; ++i) {
            out[i * sx] = log ? grad[i * sg] - std::exp(value[i * sy]) * all
                              : value[i * sy] * (grad[i * sg] - all);
          }
        });
        return absl::OkStatus();
      };
}

// x split into leading rows and the trailing dimensions that are normalised.
Extents Head(const Extents& extents, size_t tail) {
  return Extents(extents.begin(), extents.end() - tail);
}
Extents Tail(const Extents& extents, size_t tail) {
  return Extents(extents.end() - tail, extents.end());
}
Extents StridesOr0(const Builder& b, int place, size_t rank) {
  return b.has(place) ? b.type(place).strides : Extents(rank, 0);
}
template <class T>
T* Maybe(const Call& call, bool has, int place) {
  return has ? call.At<T>(place) : nullptr;
}

template <class T>
Kernel MakeLayerNorm(const Builder& b) {
  const auto& a = b.attributes<LayerNormAttributes>();
  const size_t tail = a.normalized_shape.size();
  const TensorType &x = b.type(0), &y = b.type(3);
  const Extents rows_shape = Head(x.shape, tail);
  const auto rows =
      MakeNest<4>(rows_shape, {Head(x.strides, tail), Head(StridesOr0(b, 4, x.rank()), tail),
                               Head(StridesOr0(b, 5, x.rank()), tail), Head(y.strides, tail)});
  const auto row = MakeNest<4>(a.normalized_shape, {Tail(x.strides, tail), StridesOr0(b, 1, tail),
                                                    StridesOr0(b, 2, tail), Tail(y.strides, tail)});
  double count = 1;
  for (int64_t extent : a.normalized_shape) count *= extent;
  return [=, eps = a.eps, has_weight = b.has(1), has_bias = b.has(2), has_mean = b.has(4),
          has_rstd = b.has(5)](const Call& call) {
    const T* const weight = Maybe<T>(call, has_weight, 1);
    const T* const bias = Maybe<T>(call, has_bias, 2);
    ForEach(rows, [&](const Nest<4>::Steps& at) {
      const T* const in = call.At<T>(0) + at[0];
      T* const out = call.At<T>(3) + at[3];
      double sum = 0, squares = 0;
      ForEach(row, [&](const Nest<4>::Steps& i) { sum += in[i[0]]; });
      const double mean = sum / count;
      ForEach(row, [&](const Nest<4>::Steps& i) {
        const double off = in[i[0]] - mean;
        squares += off * off;
      });
      const double rstd = 1 / std::sqrt(squares / count + eps);
      ForEach(row, [&](const Nest<4>::Steps& i) {
        double value = (in[i[0]] - mean) * rstd;
        if (weight != nullptr) value *= weight[i[1]];
        if (bias != nullptr) value += bias[i[2]];
        out[i[3]] = static_cast<T>(value);
      });
      if (has_mean) call.At<T>(4)[at[1]] = static_cast<T>(mean);
      if (has_rstd) call.At<T>(5)[at[2]] = static_cast<T>(rstd);
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeLayerNormGradient(Builder& b) {
  const auto& a = b.attributes<LayerNormAttributes>();
  const size_t tail = a.normalized_shape.size();
  const TensorType &x = b.type(0), &dy = b.type(4), &dx = b.type(5);
  const auto rows =
      MakeNest<5>(Head(x.shape, tail),
                  {Head(x.strides, tail), Head(b.type(1).strides, tail),
                   Head(b.type(2).strides, tail), Head(dy.strides, tail), Head(dx.strides, tail)});
  const Extents dense = RowMajorStrides(a.normalized_shape);
  const auto row =
      MakeNest<5>(a.normalized_shape, {Tail(x.strides, tail), StridesOr0(b, 3, tail),
                                       Tail(dy.strides, tail), dense, Tail(dx.strides, tail)});
  const auto out =
      MakeNest<3>(a.normalized_shape, {dense, StridesOr0(b, 6, tail), StridesOr0(b, 7, tail)});
  int64_t count = 1;
  for (int64_t extent : a.normalized_shape) count *= extent;
  const uint64_t sums = b.Reserve(2 * count * sizeof(double));
  return
      [=, has_weight = b.has(3), has_dweight = b.has(6), has_dbias = b.has(7)](const Call& call) {
        double* const dweight = call.Work<double>(sums);
        double* const dbias = dweight + count;
        std::fill_n(dweight, 2 * count, 0.0);
        const T* const weight = Maybe<T>(call, has_weight, 3);
        ForEach(rows, [&](const Nest<5>::Steps& at) {
          const T* const in = call.At<T>(0) + at[0];
          const double mean = call.At<T>(1)[at[1]], rstd = call.At<T>(2)[at[2]];
          const T* const grad = call.At<T>(4) + at[3];
          T* const result = call.At<T>(5) + at[4];
          double sum = 0, along = 0;
          ForEach(row, [&](const Nest<5>::Steps& i) {
            const double normal = (in[i[0]] - mean) * rstd;
            const double g = grad[i[2]] * (weight != nullptr ? double(weight[i[1]]) : 1.0);
            sum += g;
            along += g * normal;
            dweight[i[3]] += grad[i[2]] * normal;
            dbias[i[3]] += grad[i[2]];
          });
          ForEach(row, [&](const Nest<5>::Steps& i) {
            const double normal = (in[i[0]] - mean) * rstd;
            const double g = grad[i[2]] * (weight != nullptr ? double(weight[i[1]]) : 1.0);
            result[i[4]] = static_cast<T>(rstd * (g - (sum + normal * along) / count));
          });
        });
        ForEach(out, [&](const Nest<3>::Steps& i) {
          if (has_dweight) call.At<T>(6)[i[1]] = static_cast<T>(dweight[i[0]]);
          if (has_dbias) call.At<T>(7)[i[2]] = static_cast<T>(dbias[i[0]]);
        });
        return absl::OkStatus();
      };
}

template <class T>
Kernel MakeBatchNorm(const Builder& b) {
  const auto& a = b.attributes<BatchNormAttributes>();
  const Rows x = Along(b.type(0), 1), y = Along(b.type(5), 1);
  const auto nest = MakeNest<2>(x.shape, {x.strides, y.strides});
  std::array<int64_t, 8> step{};
  std::array<bool, 8> has{};
  for (int place : {1, 2, 3, 4, 6, 7}) {
    has[place] = b.has(place);
    if (has[place]) step[place] = b.type(place).strides[0];
  }
  const int64_t count = x.count == 0 ? 0 : b.type(0).elements() / x.count;
  return [=, a = a, channels = x.count, sx = x.step, sy = y.step](const Call& call) {
    auto at = [&](int place, int64_t c) -> T& { return call.At<T>(place)[c * step[place]]; };
    for (int64_t c = 0; c < channels; ++c) {
      const T* const in = call.At<T>(0) + c * sx;
      T* const out = call.At<T>(5) + c * sy;
      double mean, variance;
      if (a.training) {
        double sum = 0, squares = 0;
        ForEach(nest, [&](const Nest<2>::Steps& i) { sum += in[i[0]]; });
        mean = sum / count;
        ForEach(nest, [&](const Nest<2>::Steps& i) {
          const double off = in[i[0]] - mean;
          squares += off * off;
        });
        variance = squares / count;
        // A batch without values leaves what was learned alone.
        if (count > 0) {
          if (has[3]) at(3, c) = T((1 - a.momentum) * at(3, c) + a.momentum * mean);
          if (has[4]) {
            at(4, c) = T((1 - a.momentum) * at(4, c) + a.momentum * squares / (count - 1));
          }
        }
      } else {
        mean = at(3, c);
        variance = at(4, c);
      }
      const double rstd = 1 / std::sqrt(variance + a.eps);
      const double scale = rstd * (has[1] ? double(at(1, c)) : 1.0);
      const double shift = has[2] ? double(at(2, c)) : 0.0;
      ForEach(nest, [&](const Nest<2>::Steps& i) {
        out[i[1]] = static_cast<T>((in[i[0]] - mean) * scale + shift);
      });
      if (has[6]) at(6, c) = static_cast<T>(mean);
      if (has[7]) at(7, c) = static_cast<T>(rstd);
    }
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeBatchNormGradient(const Builder& b) {
  const Rows x = Along(b.type(0), 1), dy = Along(b.type(4), 1), dx = Along(b.type(5), 1);
  const auto nest = MakeNest<3>(x.shape, {x.strides, dy.strides, dx.strides});
  std::array<int64_t, 8> step{};
  std::array<bool, 8> has{};
  for (int place : {1, 2, 3, 6, 7}) {
    has[place] = b.has(place);
    if (has[place]) step[place] = b.type(place).strides[0];
  }
  const double count = x.count == 0 ? 0 : b.type(0).elements() / x.count;
  return [=, training = b.attributes<BatchNormAttributes>().training, channels = x.count,
          sx = x.step, sg = dy.step, so = dx.step](const Call& call) {
    auto at = [&](int place, int64_t c) -> T& { return call.At<T>(place)[c * step[place]]; };
    for (int64_t c = 0; c < channels; ++c) {
      const T* const in = call.At<T>(0) + c * sx;
      const T* const grad = call.At<T>(4) + c * sg;
      T* const out = call.At<T>(5) + c * so;
      const double mean = at(1, c), rstd = at(2, c);
      double sum = 0, along = 0;
      ForEach(nest, [&](const Nest<3>::Steps& i) {
        sum += grad[i[1]];
        along += grad[i[1]] * (in[i[0]] - mean) * rstd;
      });
      const double scale = rstd * (has[3] ? double(at(3, c)) : 1.0);
      ForEach(nest, [&](const Nest<3>::Steps& i) {
        double value = grad[i[1]];
        if (training) value -= (sum + (in[i[0]] - mean) * rstd * along) / count;
        out[i[2]] = static_cast<T>(scale * value);
      });
      if (has[6]) at(6, c) = static_cast<T>(along);
      if (has[7]) at(7, c) = static_cast<T>(sum);
    }
    return absl::OkStatus();
  };
}

// The kept dimensions of x beside y's, and the reduced ones in the order of their indices.
struct Reduced {
  Nest<3> kept;     // x, indices, y
  Nest<1> reduced;  // x
  double count = 1;
};
Reduced MakeReduced(const Builder& b) {
  const auto& a = b.attributes<ReductionAttributes>();
  const TensorType &x = b.type(0), &y = b.type(1);
  const bool places = b.has(2);
  Extents shape, from, to, index, gone_shape, gone;
  int at = 0;
  double count = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (std::find(a.dim.begin(), a.dim.end(), i) != a.dim.end()) {
      gone_shape.push_back(x.shape[i]);
      gone.push_back(x.strides[i]);
      count *= x.shape[i];
      if (a.keepdim) ++at;
      continue;
    }
    shape.push_back(x.shape[i]);
    from.push_back(x.strides[i]);
    to.push_back(y.strides[at]);
    index.push_back(places ? b.type(2).strides[at] : 0);
    ++at;
  }
  return {MakeNest<3>(shape, {from, index, to}), MakeNest<1>(gone_shape, {gone}, /*ordered=*/true),
          count};
}

template <class T>
Kernel MakeReduction(const Builder& b) {
  const Reduced r = MakeReduced(b);
  const auto kind = b.attributes<ReductionAttributes>().kind;
  if (kind == v1::REDUCTION_KIND_SUM || kind == v1::REDUCTION_KIND_MEAN ||
      kind == v1::REDUCTION_KIND_NORM2) {
    return [r, kind](const Call& call) {
      ForEach(r.kept, [&](const Nest<3>::Steps& at) {
        const T* const x = call.At<T>(0) + at[0];
        double sum = 0;
        const int64_t n = r.reduced.count, step = r.reduced.inner[0];
        Walk(r.reduced, [&](const Nest<1>::Steps& i) {
          const T* const row = x + i[0];
          if (kind == v1::REDUCTION_KIND_NORM2) {
            for (int64_t k = 0; k < n; ++k) sum += double(row[k * step]) * row[k * step];
          } else {
            for (int64_t k = 0; k < n; ++k) sum += row[k * step];
          }
        });
        if (kind == v1::REDUCTION_KIND_MEAN) sum /= r.count;
        if (kind == v1::REDUCTION_KIND_NORM2) sum = std::sqrt(sum);
        call.At<T>(1)[at[2]] = static_cast<T>(sum);
      });
      return absl::OkStatus();
    };
  }
  const bool least = kind == v1::REDUCTION_KIND_MIN || kind == v1::REDUCTION_KIND_ARGMIN;
  const bool place_only = kind == v1::REDUCTION_KIND_ARGMAX || kind == v1::REDUCTION_KIND_ARGMIN;
  return [r, least, place_only, places = b.has(2)](const Call& call) {
    ForEach(r.kept, [&](const Nest<3>::Steps& at) {
      const T* const x = call.At<T>(0) + at[0];
      T best = 0;
      int64_t where = -1, index = 0;
      ForEach(r.reduced, [&](const Nest<1>::Steps& i) {
        const T value = x[i[0]];
        const bool better =
            where < 0 ||
            (!std::isnan(best) && (std::isnan(value) || (least ? value < best : value > best)));
        if (better) {
          best = value;
          where = index;
        }
        ++index;
      });
      if (place_only) {
        call.At<int64_t>(1)[at[2]] = where;
        return;
      }
      call.At<T>(1)[at[2]] = best;
      if (places) call.At<int64_t>(2)[at[1]] = where;
    });
    return absl::OkStatus();
  };
}

// Integers and bool sum in s64.
template <class T>
Kernel MakeWholeSum(const Builder& b) {
  const Reduced r = MakeReduced(b);
  return [r](const Call& call) {
    ForEach(r.kept, [&](const Nest<3>::Steps& at) {
      const T* const x = call.At<T>(0) + at[0];
      uint64_t sum = 0;  // wraps
      ForEach(r.reduced, [&](const Nest<1>::Steps& i) {
        sum += static_cast<uint64_t>(static_cast<int64_t>(x[i[0]]));
      });
      call.At<int64_t>(1)[at[2]] = static_cast<int64_t>(sum);
    });
    return absl::OkStatus();
  };
}

absl::Status BuildReduction(Builder& b) {
  Note(b, "reduction", 1);
  switch (b.type(0).dtype) {
    case DType::kS64:
      b.plan.kernel = MakeWholeSum<int64_t>(b);
      return absl::OkStatus();
    case DType::kU64:
      b.plan.kernel = MakeWholeSum<uint64_t>(b);
      return absl::OkStatus();
    case DType::kS32:
      b.plan.kernel = MakeWholeSum<int32_t>(b);
      return absl::OkStatus();
    case DType::kS16:
      b.plan.kernel = MakeWholeSum<int16_t>(b);
      return absl::OkStatus();
    case DType::kS8:
      b.plan.kernel = MakeWholeSum<int8_t>(b);
      return absl::OkStatus();
    case DType::kU8:
      b.plan.kernel = MakeWholeSum<uint8_t>(b);
      return absl::OkStatus();
    case DType::kBool:
      b.plan.kernel = MakeWholeSum<uint8_t>(b);
      return absl::OkStatus();
    default:
      break;
  }
  return ByFloat(b.type(0).dtype, "reduction", [&](auto type) {
    b.plan.kernel = MakeReduction<decltype(type)>(b);
    return absl::OkStatus();
  });
}

void IndexFault(const Call& call, int64_t item, int64_t index) {
  if (call.fault->reason) return;
  call.fault->reason = Reason::kIndexInvalid;
  call.fault->item = item;
  call.fault->index = index;
}

// Cross entropy and its gradient: x and target as items and classes.
struct Loss {
  CrossEntropyAttributes a;
  Nest<4> items;  // x, target, y or dy, dx; in the order of the indices
  int64_t classes, x_step, target_step, dx_step, weight_step;
  bool probabilities, small_target, has_weight;
  double count = 1;  // of items
};

Loss MakeLoss(const Builder& b, int per_item, int dx) {
  Loss loss;
  loss.a = b.attributes<CrossEntropyAttributes>();
  const TensorType &x = b.type(0), &target = b.type(1);
  const int dim = x.rank() == 1 ? 0 : 1;
  const Rows rows = Along(x, dim);
  loss.classes = rows.count;
  loss.x_step = rows.step;
  loss.probabilities = target.dtype == x.dtype;
  loss.small_target = target.dtype == DType::kU8;
  Extents target_strides = target.strides;
  loss.target_step = 0;
  if (loss.probabilities) {
    loss.target_step = target.strides[dim];
    target_strides.erase(target_strides.begin() + dim);
  }
  const bool each = loss.a.reduction == v1::LOSS_REDUCTION_NONE;
  Extents zeros(rows.shape.size(), 0), out = zeros;
  loss.dx_step = 0;
  if (dx >= 0) {
    const Rows to = Along(b.type(dx), dim);
    out = to.strides;
    loss.dx_step = to.step;
  }
  loss.items = MakeNest<4>(
      rows.shape, {rows.strides, target_strides, each ? b.type(per_item).strides : zeros, out},
      /*ordered=*/true);
  for (int64_t extent : rows.shape) loss.count *= extent;
  loss.has_weight = b.has(2);
  loss.weight_step = loss.has_weight ? b.type(2).strides[0] : 0;
  return loss;
}

// For every item: f(offsets, target class or -1, weight that counts in the mean). An index that is
// no class is a fault.
template <class T, class F>
void ForItems(const Loss& loss, const Call& call, F&& f) {
  int64_t item = 0;
  ForEach(loss.items, [&](const Nest<4>::Steps& at) {
    int64_t target = -1;
    double weight = 1;
    if (!loss.probabilities) {
      target = loss.small_target ? int64_t{call.At<uint8_t>(1)[at[1]]} : call.At<int64_t>(1)[at[1]];
      if (target == loss.a.ignore_index) {
        target = -1;
        weight = 0;
      } else if (target < 0 || target >= loss.classes) {
        IndexFault(call, item, target);
        target = -1;
        weight = 0;
      } else if (loss.has_weight) {
        weight = call.At<T>(2)[target * loss.weight_step];
      }
    }
    f(at, target, weight);
    ++item;
  });
}

template <class T>
struct LogSum {
  double top, rest;  // log p = x - top - rest
};
template <class T>
LogSum<T> LogSumOf(const T* x, int64_t n, int64_t step) {
  double top = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) top = x[i * step] > top ? x[i * step] : top;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * step] - top);
  return {top, std::log(sum)};
}

template <class T>
Kernel MakeCrossEntropy(const Builder& b) {
  const Loss loss = MakeLoss(b, 3, -1);
  return [loss](const Call& call) {
    const double smooth = loss.a.label_smoothing, share = smooth / loss.classes;
    double total = 0, used = 0;
    const bool each = loss.a.reduction == v1::LOSS_REDUCTION_NONE;
    const T* const weights = Maybe<T>(call, loss.has_weight, 2);
    ForItems<T>(loss, call, [&](const Nest<4>::Steps& at, int64_t target, double weight) {
      double value = 0;
      if (target >= 0 || loss.probabilities) {
        const T* const x = call.At<T>(0) + at[0];
        const LogSum<T> log = LogSumOf(x, loss.classes, loss.x_step);
        auto minus_log = [&](int64_t c) { return log.rest + log.top - x[c * loss.x_step]; };
        auto weight_of = [&](int64_t c) {
          return weights != nullptr ? double(weights[c * loss.weight_step]) : 1.0;
        };
        if (target >= 0) value = (1 - smooth) * weight * minus_log(target);
        if (loss.probabilities || smooth > 0) {
          const T* const given = loss.probabilities ? call.At<T>(1) + at[1] : nullptr;
          for (int64_t c = 0; c < loss.classes; ++c) {
            const double part =
                given != nullptr ? given[c * loss.target_step] * (1 - smooth) + share : share;
            value += weight_of(c) * part * minus_log(c);
          }
        }
        used += loss.probabilities ? 1 : weight;
      }
      if (each) {
        call.At<T>(3)[at[2]] = static_cast<T>(value);
      } else {
        total += value;
      }
    });
    if (!each) {
      const bool mean = loss.a.reduction == v1::LOSS_REDUCTION_MEAN;
      *call.At<T>(3) = static_cast<T>(mean ? total / used : total);
    }
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeCrossEntropyGradient(const Builder& b) {
  const Loss loss = MakeLoss(b, 3, 4);
  return [loss](const Call& call) {
    const double smooth = loss.a.label_smoothing, share = smooth / loss.classes;
    const T* const weights = Maybe<T>(call, loss.has_weight, 2);
    auto weight_of = [&](int64_t c) {
      return weights != nullptr ? double(weights[c * loss.weight_step]) : 1.0;
    };
    double divisor = 1;
    if (loss.a.reduction == v1::LOSS_REDUCTION_MEAN) {
      divisor = loss.probabilities ? loss.count : 0;
      if (!loss.probabilities) {
        ForItems<T>(loss, call, [&](const Nest<4>::Steps&, int64_t, double w) { divisor += w; });
      }
    }
    ForItems<T>(loss, call, [&](const Nest<4>::Steps& at, int64_t target, double weight) {
      T* const dx = call.At<T>(4) + at[3];
      if (target < 0 && !loss.probabilities) {
        for (int64_t c = 0; c < loss.classes; ++c) dx[c * loss.dx_step] = T(0);
        return;
      }
      const T* const x = call.At<T>(0) + at[0];
      const T* const given = loss.probabilities ? call.At<T>(1) + at[1] : nullptr;
      const LogSum<T> log = LogSumOf(x, loss.classes, loss.x_step);
      const double scale = call.At<T>(3)[at[2]] / divisor;
      // The loss is the sum over classes of part(c) (-log p(c)).
      auto part = [&](int64_t c) {
        if (given != nullptr) {
          return weight_of(c) * (given[c * loss.target_step] * (1 - smooth) + share);
        }
        return (c == target ? weight * (1 - smooth) : 0) + (smooth > 0 ? weight_of(c) * share : 0);
      };
      double all = 0;
      for (int64_t c = 0; c < loss.classes; ++c) all += part(c);
      for (int64_t c = 0; c < loss.classes; ++c) {
        const double p = std::exp(x[c * loss.x_step] - log.top - log.rest);
        dx[c * loss.dx_step] = static_cast<T>(scale * (all * p - part(c)));
      }
    });
    return absl::OkStatus();
  };
}

int64_t IndexAt(const Call& call, bool narrow, int64_t offset) {
  return narrow ? int64_t{call.At<int32_t>(0)[offset]} : call.At<int64_t>(0)[offset];
}

template <class T>
Kernel MakeEmbedding(const Builder& b) {
  const TensorType &index = b.type(0), &weight = b.type(1), &y = b.type(2);
  Extents y_strides = y.strides;
  const int64_t step = y_strides.back();
  y_strides.pop_back();
  const auto nest = MakeNest<2>(index.shape, {index.strides, y_strides}, /*ordered=*/true);
  return [nest, step, narrow = index.dtype == DType::kS32, rows = weight.shape[0],
          width = weight.shape[1], down = weight.strides[0],
          across = weight.strides[1]](const Call& call) {
    int64_t item = 0;
    ForEach(nest, [&](const Nest<2>::Steps& at) {
      const int64_t row = IndexAt(call, narrow, at[0]);
      if (row < 0 || row >= rows) {
        IndexFault(call, item++, row);
        return;
      }
      ++item;
      const T* const from = call.At<T>(1) + row * down;
      T* const to = call.At<T>(2) + at[1];
      for (int64_t i = 0; i < width; ++i) to[i * step] = from[i * across];
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakeEmbeddingGradient(Builder& b) {
  const TensorType &index = b.type(0), &dy = b.type(1), &dw = b.type(2);
  Extents dy_strides = dy.strides;
  const int64_t step = dy_strides.back();
  dy_strides.pop_back();
  const auto nest = MakeNest<2>(index.shape, {index.strides, dy_strides}, /*ordered=*/true);
  const auto& a = b.attributes<EmbeddingAttributes>();
  const int64_t rows = dw.shape[0];
  const int64_t padding = !a.padding_idx ? -1 : *a.padding_idx + (*a.padding_idx < 0 ? rows : 0);
  const uint64_t counts = a.scale_grad_by_freq ? b.Reserve(rows * sizeof(int64_t)) : 0;
  return [=, narrow = index.dtype == DType::kS32, width = dw.shape[1], down = dw.strides[0],
          across = dw.strides[1], by_frequency = a.scale_grad_by_freq](const Call& call) {
    T* const to = call.At<T>(2);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) to[r * down + i * across] = T(0);
    }
    int64_t* const seen = by_frequency ? call.Work<int64_t>(counts) : nullptr;
    if (by_frequency) {
      std::fill_n(seen, rows, 0);
      ForEach(nest, [&](const Nest<2>::Steps& at) {
        const int64_t row = IndexAt(call, narrow, at[0]);
        if (row >= 0 && row < rows) ++seen[row];
      });
    }
    int64_t item = 0;
    ForEach(nest, [&](const Nest<2>::Steps& at) {
      const int64_t row = IndexAt(call, narrow, at[0]);
      if (row < 0 || row >= rows) IndexFault(call, item, row);
      ++item;
      if (row < 0 || row >= rows || row == padding) return;
      const T* const from = call.At<T>(1) + at[1];
      const T scale = by_frequency ? T(1) / T(seen[row]) : T(1);
      for (int64_t i = 0; i < width; ++i) to[row * down + i * across] += from[i * step] * scale;
    });
    return absl::OkStatus();
  };
}

// Name, place of the operand whose dtype decides, flops per element, and the two kernels.
struct Entry {
  OpKind kind;
  int place;
  double flops;
  Kernel (*f32)(Builder&);
  Kernel (*f64)(Builder&);
};
template <Kernel (*F)(const Builder&)>
Kernel Const(Builder& b) {
  return F(b);
}
const Entry kEntries[] = {
    {OpKind::kSoftmax, 0, 12, Const<MakeSoftmax<float>>, Const<MakeSoftmax<double>>},
    {OpKind::kSoftmaxGradient, 0, 4, Const<MakeSoftmaxGradient<float>>,
     Const<MakeSoftmaxGradient<double>>},
    {OpKind::kLayerNorm, 0, 8, Const<MakeLayerNorm<float>>, Const<MakeLayerNorm<double>>},
    {OpKind::kLayerNormGradient, 0, 12, MakeLayerNormGradient<float>,
     MakeLayerNormGradient<double>},
    {OpKind::kBatchNorm, 0, 8, Const<MakeBatchNorm<float>>, Const<MakeBatchNorm<double>>},
    {OpKind::kBatchNormGradient, 0, 12, Const<MakeBatchNormGradient<float>>,
     Const<MakeBatchNormGradient<double>>},
    {OpKind::kCrossEntropy, 0, 12, Const<MakeCrossEntropy<float>>, Const<MakeCrossEntropy<double>>},
    {OpKind::kCrossEntropyGradient, 0, 24, Const<MakeCrossEntropyGradient<float>>,
     Const<MakeCrossEntropyGradient<double>>},
    {OpKind::kEmbedding, 1, 1, Const<MakeEmbedding<float>>, Const<MakeEmbedding<double>>},
    {OpKind::kEmbeddingGradient, 1, 1, MakeEmbeddingGradient<float>, MakeEmbeddingGradient<double>},
};

absl::Status BuildEntry(Builder& b) {
  for (const Entry& entry : kEntries) {
    if (entry.kind != b.spec.kind) continue;
    const absl::string_view name = KindName(entry.kind);
    Note(b, name, entry.flops);
    return ByFloat(b.type(entry.place).dtype, name, [&](auto type) {
      b.plan.kernel = std::is_same_v<decltype(type), float> ? entry.f32(b) : entry.f64(b);
      return absl::OkStatus();
    });
  }
  return Error(Reason::kInternal, "no entry of this kind");
}

constexpr KernelRow kRows[] = {
    {OpKind::kSoftmax, BuildEntry},
    {OpKind::kSoftmaxGradient, BuildEntry},
    {OpKind::kLayerNorm, BuildEntry},
    {OpKind::kLayerNormGradient, BuildEntry},
    {OpKind::kBatchNorm, BuildEntry},
    {OpKind::kBatchNormGradient, BuildEntry},
    {OpKind::kReduction, BuildReduction},
    {OpKind::kCrossEntropy, BuildEntry},
    {OpKind::kCrossEntropyGradient, BuildEntry},
    {OpKind::kEmbedding, BuildEntry},
    {OpKind::kEmbeddingGradient, BuildEntry},
};

}  // namespace

absl::Span<const KernelRow> NormKernels() { return kRows; }

}  // namespace backendd::worker
