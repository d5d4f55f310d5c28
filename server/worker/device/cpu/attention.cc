// sdpa and its gradient: tiles of rows, each against all keys, products by OpenBLAS. The matrix of
// scores never exists as a whole.
#include <cblas.h>

#include <cmath>
#include <limits>

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"
#include "shared/text.h"

namespace backendd::worker {
namespace {

constexpr int64_t kTile = 64;

// y[m, n] = alpha op(a) op(b) + beta y, all dense. Empty extents stay here.
template <class T>
void Multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, T alpha, const T* a, const T* b,
              T beta, T* y) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == T(0)) std::fill_n(y, m * n, T(0));
    return;
  }
  const auto oa = ta ? CblasTrans : CblasNoTrans, ob = tb ? CblasTrans : CblasNoTrans;
  const int64_t lda = ta ? m : k, ldb = tb ? k : n;
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, oa, ob, m, n, k, alpha, a, lda, b, ldb, beta, y, n);
  } else {
    cblas_dgemm(CblasRowMajor, oa, ob, m, n, k, alpha, a, lda, b, ldb, beta, y, n);
  }
}

// The matrices of an operand: where the one of a batch index begins, and its steps. A query head h
// reads head h / group.
struct Matrices {
  Extents strides;
  int64_t group = 1;
  int64_t rows = 0, columns = 0, row_step = 0, column_step = 0;

  int64_t Offset(const Extents& index) const {
    int64_t offset = 0;
    for (size_t i = 0; i < strides.size(); ++i) {
      const bool heads = i + 1 == strides.size();
      offset += strides[i] * (heads ? index[i] / group : index[i]);
    }
    return offset;
  }
};

Matrices MakeMatrices(const TensorType& type, const Extents& batch, bool grouped) {
  Matrices m;
  TensorType head = type;
  const size_t rank = type.shape.size();
  m.rows = type.shape[rank - 2];
  m.columns = type.shape[rank - 1];
  m.row_step = type.strides[rank - 2];
  m.column_step = type.strides[rank - 1];
  head.shape.resize(rank - 2);
  head.strides.resize(rank - 2);
  m.strides = BroadcastStrides(head, batch);
  if (grouped && !head.shape.empty()) {
    m.group = batch.back() / head.shape.back();
    m.strides.back() = head.strides.back();
  }
  return m;
}

template <class T>
void Load(const Matrices& m, const T* from, int64_t first, int64_t count, T* to) {
  for (int64_t r = first; r < first + count; ++r) {
    for (int64_t c = 0; c < m.columns; ++c) *to++ = from[r * m.row_step + c * m.column_step];
  }
}
template <class T>
void Store(const Matrices& m, const T* from, int64_t first, int64_t count, T* to, bool add) {
  for (int64_t r = first; r < first + count; ++r) {
    for (int64_t c = 0; c < m.columns; ++c) {
      T& at = to[r * m.row_step + c * m.column_step];
      at = add ? at + *from++ : *from++;
    }
  }
}

// What forward and gradient share.
struct Geometry {
  Extents batch;
  int64_t items = 1, lq, lk, d, dv;
  Matrices q, k, v, mask;
  bool has_mask, bool_mask, causal;
  double scale;
};

Geometry MakeGeometry(const Builder& b, const TensorType& y, int mask) {
  const auto& a = b.attributes<SdpaAttributes>();
  Geometry g;
  g.batch.assign(y.shape.begin(), y.shape.end() - 2);
  for (int64_t extent : g.batch) g.items *= extent;
  g.q = MakeMatrices(b.type(0), g.batch, false);
  g.k = MakeMatrices(b.type(1), g.batch, a.enable_gqa);
  g.v = MakeMatrices(b.type(2), g.batch, a.enable_gqa);
  g.lq = g.q.rows;
  g.lk = g.k.rows;
  g.d = g.q.columns;
  g.dv = g.v.columns;
  g.has_mask = b.has(mask);
  g.bool_mask = g.has_mask && b.type(mask).dtype == DType::kBool;
  if (g.has_mask) {
    Extents scores = g.batch;
    scores.push_back(g.lq);
    scores.push_back(g.lk);
    TensorType wide{b.type(mask).dtype, scores, BroadcastStrides(b.type(mask), scores)};
    g.mask = MakeMatrices(wide, g.batch, false);
    // Extents of 1 in the batch repeat by a stride of 0 already.
    g.mask.strides.assign(wide.strides.begin(), wide.strides.end() - 2);
  }
  g.causal = a.is_causal;
  g.scale = a.scale;
  return g;
}

template <class F>
void ForBatch(const Geometry& g, F&& f) {
  Extents index(g.batch.size(), 0);
  for (int64_t item = 0; item < g.items; ++item) {
    f(index);
    for (int dim = static_cast<int>(index.size()) - 1; dim >= 0; --dim) {
      if (++index[dim] < g.batch[dim]) break;
      index[dim] = 0;
    }
  }
}

// The probabilities of a tile of rows, in place of their scores; the log of each row's sum. A row
// without a key has probabilities of 0.
template <class T>
void Probabilities(const Geometry& g, const Extents& index, const void* mask, int64_t first,
                   int64_t count, T* scores, T* log_sums) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const int64_t base = g.has_mask ? g.mask.Offset(index) : 0;
  for (int64_t r = 0; r < count; ++r) {
    T* const row = scores + r * g.lk;
    const int64_t i = first + r;
    for (int64_t j = 0; g.has_mask && j < g.lk; ++j) {
      const int64_t at = base + i * g.mask.row_step + j * g.mask.column_step;
      if (!g.bool_mask) {
        row[j] += static_cast<const T*>(mask)[at];
      } else if (!static_cast<const bool*>(mask)[at]) {
        row[j] = kNothing;
      }
    }
    for (int64_t j = i + 1; g.causal && j < g.lk; ++j) row[j] = kNothing;
    T top = kNothing;
    bool any = false;
    for (int64_t j = 0; j < g.lk; ++j) {
      any = any || row[j] != kNothing;
      if (row[j] > top) top = row[j];
    }
    double sum = 0;
    for (int64_t j = 0; j < g.lk; ++j) {
      row[j] = any ? std::exp(row[j] - top) : T(0);
      sum += row[j];
    }
    const T scale = any ? static_cast<T>(1 / sum) : T(0);
    for (int64_t j = 0; j < g.lk; ++j) row[j] *= scale;
    log_sums[r] = any ? static_cast<T>(top + std::log(sum)) : kNothing;
  }
}

template <class T>
absl::Status BuildForward(Builder& b) {
  const TensorType& y_type = b.type(5);
  const Geometry g = MakeGeometry(b, y_type, 3);
  const Matrices y = MakeMatrices(y_type, g.batch, false);
  Extents sums_strides;
  int64_t sums_step = 0;
  if (b.has(6)) {
    sums_strides = b.type(6).strides;
    sums_step = sums_strides.back();
    sums_strides.pop_back();
  }
  const Matrices sums{sums_strides};
  const int64_t words = g.lk * (g.d + g.dv) + kTile * (g.d + g.lk + g.dv + 1);
  const uint64_t work = b.Reserve(words * sizeof(T));
  b.plan.kernel = [=, has_sums = b.has(6)](const Call& call) {
    T* const keys = call.Work<T>(work);
    T* const values = keys + g.lk * g.d;
    T* const rows = values + g.lk * g.dv;
    T* const scores = rows + kTile * g.d;
    T* const out = scores + kTile * g.lk;
    T* const logs = out + kTile * g.dv;
    ForBatch(g, [&](const Extents& index) {
      Load(g.k, call.At<T>(1) + g.k.Offset(index), 0, g.lk, keys);
      Load(g.v, call.At<T>(2) + g.v.Offset(index), 0, g.lk, values);
      for (int64_t first = 0; first < g.lq; first += kTile) {
        const int64_t count = std::min(kTile, g.lq - first);
        Load(g.q, call.At<T>(0) + g.q.Offset(index), first, count, rows);
        Multiply(false, true, count, g.lk, g.d, T(g.scale), rows, keys, T(0), scores);
        Probabilities(g, index, call.operands[3], first, count, scores, logs);
        Multiply(false, false, count, g.dv, g.lk, T(1), scores, values, T(0), out);
        Store(y, out, first, count, call.At<T>(5) + y.Offset(index), false);
        if (!has_sums) continue;
        T* const to = call.At<T>(6) + sums.Offset(index);
        for (int64_t r = 0; r < count; ++r) to[(first + r) * sums_step] = logs[r];
      }
    });
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
void Clear(const TensorType& type, T* to) {
  const auto nest = MakeNest<1>(std::array<const TensorType*, 1>{&type});
  Walk(nest, [&](const Nest<1>::Steps& at) {
    for (int64_t i = 0; i < nest.count; ++i) to[at[0] + i * nest.inner[0]] = T(0);
  });
}

// Scores and probabilities are computed again: y and log_sum_exp of the forward are not needed.
template <class T>
absl::Status BuildGradient(Builder& b) {
  const bool grouped = b.attributes<SdpaAttributes>().enable_gqa;
  const Geometry g = MakeGeometry(b, b.type(3), 4);
  const Matrices dy = MakeMatrices(b.type(3), g.batch, false);
  const Matrices dq = MakeMatrices(b.type(7), g.batch, false);
  const Matrices dk = MakeMatrices(b.type(8), g.batch, grouped);
  const Matrices dv = MakeMatrices(b.type(9), g.batch, grouped);
  Matrices dmask;
  if (b.has(10)) {
    Extents scores = g.batch;
    scores.push_back(g.lq);
    scores.push_back(g.lk);
    const Extents strides = BroadcastStrides(b.type(10), scores);
    dmask.strides.assign(strides.begin(), strides.end() - 2);
    dmask.rows = g.lq;
    dmask.columns = g.lk;
    dmask.row_step = strides[strides.size() - 2];
    dmask.column_step = strides.back();
  }
  const int64_t words = 2 * g.lk * (g.d + g.dv) + kTile * (2 * g.d + g.dv + 2 * g.lk + 1);
  const uint64_t work = b.Reserve(words * sizeof(T));
  std::array<TensorType, 4> results;
  for (int i = 0; i < 4; ++i) {
    if (b.has(7 + i)) results[i] = b.type(7 + i);
  }
  b.plan.kernel = [=, has_dmask = b.has(10)](const Call& call) {
    T* const keys = call.Work<T>(work);
    T* const values = keys + g.lk * g.d;
    T* const dkeys = values + g.lk * g.dv;
    T* const dvalues = dkeys + g.lk * g.d;
    T* const rows = dvalues + g.lk * g.dv;
    T* const drows = rows + kTile * g.d;
    T* const dout = drows + kTile * g.d;
    T* const p = dout + kTile * g.dv;
    T* const ds = p + kTile * g.lk;
    T* const logs = ds + kTile * g.lk;
    for (int i = 0; i < (has_dmask ? 4 : 3); ++i) Clear(results[i], call.At<T>(7 + i));
    ForBatch(g, [&](const Extents& index) {
      Load(g.k, call.At<T>(1) + g.k.Offset(index), 0, g.lk, keys);
      Load(g.v, call.At<T>(2) + g.v.Offset(index), 0, g.lk, values);
      std::fill_n(dkeys, g.lk * (g.d + g.dv), T(0));
      for (int64_t first = 0; first < g.lq; first += kTile) {
        const int64_t count = std::min(kTile, g.lq - first);
        Load(g.q, call.At<T>(0) + g.q.Offset(index), first, count, rows);
        Load(dy, call.At<T>(3) + dy.Offset(index), first, count, dout);
        Multiply(false, true, count, g.lk, g.d, T(g.scale), rows, keys, T(0), p);
        Probabilities(g, index, call.operands[4], first, count, p, logs);
        Multiply(true, false, g.lk, g.dv, count, T(1), p, dout, T(1), dvalues);
        Multiply(false, true, count, g.lk, g.dv, T(1), dout, values, T(0), ds);
        for (int64_t r = 0; r < count; ++r) {
          double along = 0;
          for (int64_t j = 0; j < g.lk; ++j) along += double(p[r * g.lk + j]) * ds[r * g.lk + j];
          for (int64_t j = 0; j < g.lk; ++j) {
            const T probability = p[r * g.lk + j];
            T& at = ds[r * g.lk + j];
            at = probability == T(0) ? T(0) : probability * (at - static_cast<T>(along));
          }
        }
        if (has_dmask) {
          Store(dmask, ds, first, count, call.At<T>(10) + dmask.Offset(index), true);
        }
        Multiply(false, false, count, g.d, g.lk, T(g.scale), ds, keys, T(0), drows);
        Store(dq, drows, first, count, call.At<T>(7) + dq.Offset(index), true);
        Multiply(true, false, g.lk, g.d, count, T(g.scale), ds, rows, T(1), dkeys);
      }
      Store(dk, dkeys, 0, g.lk, call.At<T>(8) + dk.Offset(index), true);
      Store(dv, dvalues, 0, g.lk, call.At<T>(9) + dv.Offset(index), true);
    });
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status BuildSdpa(Builder& b) {
  const bool forward = b.spec.kind == OpKind::kSdpa;
  if (!b.On(b.cpu.flags.math_sdp)) {
    return Error(Reason::kNoKernel, "no enabled candidate computes this attention",
                 {{"operation", Str(KindName(b.spec.kind))},
                  {"math", "cuda.math_sdp_enabled is false"},
                  {"flash", "not offered on this device"}});
  }
  if (b.attributes<SdpaAttributes>().dropout_p > 0) {
    return Error(Reason::kOpUnsupported, "attention with dropout is not offered on the CPU");
  }
  Choice& choice = b.plan.choice;
  choice.library = "openblas";
  choice.library_version = b.cpu.openblas_version;
  choice.algorithm = "math";
  choice.candidates = {"math"};
  RETURN_IF_ERROR(ByFloat(b.type(0).dtype, KindName(b.spec.kind), [&](auto type) {
    using T = decltype(type);
    return forward ? BuildForward<T>(b) : BuildGradient<T>(b);
  }));
  const double scores =
      double(b.type(forward ? 5 : 3).elements()) * b.type(1).shape[b.type(1).rank() - 2];
  b.Cost((forward ? 4 : 10) * scores, 0);
  return absl::OkStatus();
}

constexpr KernelRow kRows[] = {{OpKind::kSdpa, BuildSdpa}, {OpKind::kSdpaGradient, BuildSdpa}};

}  // namespace

absl::Span<const KernelRow> AttentionKernels() { return kRows; }

}  // namespace backendd::worker
