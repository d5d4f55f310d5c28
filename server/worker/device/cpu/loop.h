// Loops over strided views. Dimensions that lie together in every operand become one, so dense
// operands are one row that the compiler vectorises; everything else takes the same code with
// strides.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_LOOP_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_LOOP_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "shared/tensor.h"

namespace backendd::worker {

// N views walked together, the last one the output. Without elements: `empty`.
template <size_t N>
struct Nest {
  using Steps = std::array<int64_t, N>;
  Extents shape;  // of the outer dimensions
  std::array<Extents, N> strides;
  int64_t count = 1;  // of the innermost dimension
  Steps inner{};
  bool empty = false;

  bool dense() const {
    return std::all_of(inner.begin(), inner.end(), [](int64_t step) { return step == 1; });
  }
};

// The strides of `type` broadcast to `shape`: 0 where it repeats.
inline Extents BroadcastStrides(const TensorType& type, const Extents& shape) {
  Extents strides(shape.size(), 0);
  const size_t missing = shape.size() - type.shape.size();
  for (size_t i = missing; i < shape.size(); ++i) {
    strides[i] = type.shape[i - missing] == 1 ? 0 : type.strides[i - missing];
  }
  return strides;
}

// `ordered`: rows are walked in the order of the indices, else in the output's memory order.
template <size_t N>
Nest<N> MakeNest(const Extents& shape, std::array<Extents, N> strides, bool ordered = false) {
  Nest<N> nest;
  std::array<int, kMaxRank * 2> order;
  int dims = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) nest.empty = true;
    if (shape[i] != 1) order[dims++] = static_cast<int>(i);
  }
  if (!ordered) {
    std::stable_sort(order.begin(), order.begin() + dims,
                     [&](int a, int b) { return strides[N - 1][a] > strides[N - 1][b]; });
  }
  for (int at = 0; at < dims; ++at) {
    const int dim = order[at];
    bool merges = !nest.shape.empty();
    for (size_t k = 0; k < N && merges; ++k) {
      merges = nest.strides[k].back() == strides[k][dim] * shape[dim];
    }
    if (!merges) {
      nest.shape.push_back(1);
      for (size_t k = 0; k < N; ++k) nest.strides[k].push_back(0);
    }
    nest.shape.back() *= shape[dim];
    for (size_t k = 0; k < N; ++k) nest.strides[k].back() = strides[k][dim];
  }
  nest.inner.fill(1);
  if (!nest.shape.empty()) {
    nest.count = nest.shape.back();
    nest.shape.pop_back();
    for (size_t k = 0; k < N; ++k) {
      nest.inner[k] = nest.strides[k].back();
      nest.strides[k].pop_back();
    }
  }
  return nest;
}

// All operands broadcast to the last one's shape.
template <size_t N>
Nest<N> MakeNest(std::array<const TensorType*, N> types, bool ordered = false) {
  std::array<Extents, N> strides;
  for (size_t k = 0; k < N; ++k) strides[k] = BroadcastStrides(*types[k], types[N - 1]->shape);
  return MakeNest<N>(types[N - 1]->shape, std::move(strides), ordered);
}

// row(offsets in elements) for every row.
template <size_t N, class F>
void Walk(const Nest<N>& nest, F&& row) {
  if (nest.empty) return;
  typename Nest<N>::Steps offsets{};
  const int dims = static_cast<int>(nest.shape.size());
  std::array<int64_t, kMaxRank * 2> index{};
  while (true) {
    row(offsets);
    int dim = dims - 1;
    for (; dim >= 0; --dim) {
      for (size_t k = 0; k < N; ++k) offsets[k] += nest.strides[k][dim];
      if (++index[dim] < nest.shape[dim]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= nest.strides[k][dim] * nest.shape[dim];
      index[dim] = 0;
    }
    if (dim < 0) return;
  }
}

// y = f(x...) for every element.
template <class Y, class X, class F>
void Map1(const Nest<2>& nest, const X* x, Y* y, F f) {
  const int64_t n = nest.count;
  Walk(nest, [&](const Nest<2>::Steps& at) {
    const X* xr = x + at[0];
    Y* yr = y + at[1];
    if (nest.dense()) {
      for (int64_t i = 0; i < n; ++i) yr[i] = f(xr[i]);
    } else {
      const int64_t sx = nest.inner[0], sy = nest.inner[1];
      for (int64_t i = 0; i < n; ++i) yr[i * sy] = f(xr[i * sx]);
    }
  });
}
template <class Y, class A, class B, class F>
void Map2(const Nest<3>& nest, const A* a, const B* b, Y* y, F f) {
  const int64_t n = nest.count;
  Walk(nest, [&](const Nest<3>::Steps& at) {
    const A* ar = a + at[0];
    const B* br = b + at[1];
    Y* yr = y + at[2];
    if (nest.dense()) {
      for (int64_t i = 0; i < n; ++i) yr[i] = f(ar[i], br[i]);
    } else if (nest.inner[0] == 1 && nest.inner[1] == 0 && nest.inner[2] == 1) {
      const B only = *br;
      for (int64_t i = 0; i < n; ++i) yr[i] = f(ar[i], only);
    } else {
      const int64_t sa = nest.inner[0], sb = nest.inner[1], sy = nest.inner[2];
      for (int64_t i = 0; i < n; ++i) yr[i * sy] = f(ar[i * sa], br[i * sb]);
    }
  });
}
template <class Y, class A, class B, class C, class F>
void Map3(const Nest<4>& nest, const A* a, const B* b, const C* c, Y* y, F f) {
  const int64_t n = nest.count;
  const auto [sa, sb, sc, sy] = nest.inner;
  Walk(nest, [&, sa = sa, sb = sb, sc = sc, sy = sy](const Nest<4>::Steps& at) {
    for (int64_t i = 0; i < n; ++i) {
      y[at[3] + i * sy] = f(a[at[0] + i * sa], b[at[1] + i * sb], c[at[2] + i * sc]);
    }
  });
}

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_LOOP_H_
