// Pooling over 1 to 3 spatial dimensions, and its gradient.
#include <cmath>

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"

namespace backendd::worker {
namespace {

// Fewer spatial dimensions are 3 with extents of 1 in front.
struct Geometry {
  int64_t x[3], y[3], x_step[3], y_step[3], index_step[3];
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  Nest<3> planes;  // x, indices, y
  v1::PoolingKind kind;
  bool count_include_pad;
  int64_t divisor;  // 0: what the window counts
};

Geometry MakeGeometry(const PoolingAttributes& a, const TensorType& x, const TensorType& y,
                      const TensorType* indices) {
  Geometry g;
  const int missing = 3 - static_cast<int>(a.kernel.size());
  for (int i = 0; i < 3; ++i) {
    const int at = i - missing;
    const bool real = at >= 0;
    g.x[i] = real ? x.shape[at + 2] : 1;
    g.y[i] = real ? y.shape[at + 2] : 1;
    g.x_step[i] = real ? x.strides[at + 2] : 0;
    g.y_step[i] = real ? y.strides[at + 2] : 0;
    g.index_step[i] = real && indices != nullptr ? indices->strides[at + 2] : 0;
    g.kernel[i] = real ? a.kernel[at] : 1;
    g.stride[i] = real ? a.stride[at] : 1;
    g.padding[i] = real ? a.padding[at] : 0;
    g.dilation[i] = real ? a.dilation[at] : 1;
  }
  auto planes = [](const TensorType& type) {
    return Extents(type.strides.begin(), type.strides.begin() + 2);
  };
  g.planes =
      MakeNest<3>(Extents(y.shape.begin(), y.shape.begin() + 2),
                  {planes(x), indices != nullptr ? planes(*indices) : Extents(2, 0), planes(y)});
  g.kind = a.kind;
  g.count_include_pad = a.count_include_pad;
  g.divisor = a.divisor_override;
  return g;
}

// The part of a window that lies in the input, [first, last) in steps of the dilation, and how long
// the window is with its padding.
struct Span3 {
  int64_t first[3], last[3];
  int64_t padded = 1, inside = 1;
};
Span3 WindowAt(const Geometry& g, const int64_t* at) {
  Span3 span;
  for (int i = 0; i < 3; ++i) {
    int64_t first = at[i] * g.stride[i] - g.padding[i];
    const int64_t end =
        std::min(first + (g.kernel[i] - 1) * g.dilation[i] + 1, g.x[i] + g.padding[i]);
    span.padded *= end - first;
    if (first < 0) first += (-first + g.dilation[i] - 1) / g.dilation[i] * g.dilation[i];
    span.first[i] = first;
    span.last[i] = std::min(end, g.x[i]);
    span.inside *= std::max<int64_t>(0, span.last[i] - first);
  }
  return span;
}

template <class F>
void ForWindows(const Geometry& g, F&& f) {
  int64_t at[3];
  for (at[0] = 0; at[0] < g.y[0]; ++at[0]) {
    for (at[1] = 0; at[1] < g.y[1]; ++at[1]) {
      for (at[2] = 0; at[2] < g.y[2]; ++at[2]) f(at, WindowAt(g, at));
    }
  }
}

// f(place in the plane counted in elements, offset of x)
template <class F>
void ForInside(const Geometry& g, const Span3& span, F&& f) {
  for (int64_t i = span.first[0]; i < span.last[0]; i += g.dilation[0]) {
    for (int64_t j = span.first[1]; j < span.last[1]; j += g.dilation[1]) {
      for (int64_t k = span.first[2]; k < span.last[2]; k += g.dilation[2]) {
        f((i * g.x[1] + j) * g.x[2] + k, i * g.x_step[0] + j * g.x_step[1] + k * g.x_step[2]);
      }
    }
  }
}

int64_t Offset(const int64_t* at, const int64_t* step) {
  return at[0] * step[0] + at[1] * step[1] + at[2] * step[2];
}

double Divisor(const Geometry& g, const Span3& span) {
  if (g.divisor != 0) return static_cast<double>(g.divisor);
  return static_cast<double>(g.count_include_pad ? span.padded : span.inside);
}

template <class F>
void ForPlanes(const Geometry& g, F&& f) {
  Walk(g.planes, [&](Nest<3>::Steps at) {
    for (int64_t i = 0; i < g.planes.count; ++i) {
      f(at);
      for (int k = 0; k < 3; ++k) at[k] += g.planes.inner[k];
    }
  });
}

template <class T>
Kernel MakePooling(const Builder& b) {
  const Geometry g = MakeGeometry(b.attributes<PoolingAttributes>(), b.type(0), b.type(1),
                                  b.has(2) ? &b.type(2) : nullptr);
  return [g, places = b.has(2)](const Call& call) {
    ForPlanes(g, [&](const Nest<3>::Steps& plane) {
      const T* const x = call.At<T>(0) + plane[0];
      T* const y = call.At<T>(1) + plane[2];
      ForWindows(g, [&](const int64_t* at, const Span3& span) {
        if (g.kind == v1::POOLING_KIND_AVG) {
          double sum = 0;
          ForInside(g, span, [&](int64_t, int64_t from) { sum += x[from]; });
          y[Offset(at, g.y_step)] = static_cast<T>(sum / Divisor(g, span));
          return;
        }
        T best = 0;
        int64_t where = -1;
        ForInside(g, span, [&](int64_t place, int64_t from) {
          const T value = x[from];
          if (where < 0 || (!std::isnan(best) && (std::isnan(value) || value > best))) {
            best = value;
            where = place;
          }
        });
        y[Offset(at, g.y_step)] = best;
        if (places) call.At<int64_t>(2)[plane[1] + Offset(at, g.index_step)] = where;
      });
    });
    return absl::OkStatus();
  };
}

template <class T>
Kernel MakePoolingGradient(const Builder& b) {
  const TensorType& dx = b.type(2);
  const Geometry g = MakeGeometry(b.attributes<PoolingAttributes>(), dx, b.type(0),
                                  b.has(1) ? &b.type(1) : nullptr);
  const auto all = MakeNest<1>(std::array<const TensorType*, 1>{&dx});
  return [g, all](const Call& call) {
    Walk(all, [&](const Nest<1>::Steps& at) {
      for (int64_t i = 0; i < all.count; ++i) call.At<T>(2)[at[0] + i * all.inner[0]] = T(0);
    });
    const int64_t plane_size = g.x[0] * g.x[1] * g.x[2];
    ForPlanes(g, [&](const Nest<3>::Steps& plane) {
      T* const to = call.At<T>(2) + plane[0];
      const T* const dy = call.At<T>(0) + plane[2];
      ForWindows(g, [&](const int64_t* at, const Span3& span) {
        const T grad = dy[Offset(at, g.y_step)];
        if (g.kind == v1::POOLING_KIND_AVG) {
          const T each = static_cast<T>(grad / Divisor(g, span));
          ForInside(g, span, [&](int64_t, int64_t from) { to[from] += each; });
          return;
        }
        const int64_t index = call.At<int64_t>(1)[plane[1] + Offset(at, g.index_step)];
        if (index < 0 || index >= plane_size) {
          if (!call.fault->reason) {
            call.fault->reason = Reason::kIndexInvalid;
            call.fault->index = index;
          }
          return;
        }
        const int64_t place[3] = {index / (g.x[1] * g.x[2]), index / g.x[2] % g.x[1],
                                  index % g.x[2]};
        to[Offset(place, g.x_step)] += grad;
      });
    });
    return absl::OkStatus();
  };
}

absl::Status BuildPooling(Builder& b) {
  const bool forward = b.spec.kind == OpKind::kPooling;
  const auto& a = b.attributes<PoolingAttributes>();
  double window = 1;
  for (int64_t extent : a.kernel) window *= extent;
  b.plan.choice.library = "own";
  b.plan.choice.algorithm = a.kind == v1::POOLING_KIND_AVG ? "average windows" : "max windows";
  const TensorType &x = b.type(forward ? 0 : 2), &y = b.type(forward ? 1 : 0);
  b.Cost(4 * window * y.elements(), 8 * (x.elements() + y.elements()));
  return ByFloat(b.type(0).dtype, KindName(b.spec.kind), [&](auto type) {
    using T = decltype(type);
    b.plan.kernel = forward ? MakePooling<T>(b) : MakePoolingGradient<T>(b);
    return absl::OkStatus();
  });
}

constexpr KernelRow kRows[] = {{OpKind::kPooling, BuildPooling},
                               {OpKind::kPoolingGradient, BuildPooling}};

}  // namespace

absl::Span<const KernelRow> PoolingKernels() { return kRows; }

}  // namespace backendd::worker
