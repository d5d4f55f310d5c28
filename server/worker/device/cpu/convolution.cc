// Convolution, forward and both gradients: by oneDNN (f32), else by im2col and OpenBLAS. A
// transposed convolution is the input gradient of the swapped pair, so three directions serve six.
#include <cblas.h>

#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/onednn.h"
#include "server/worker/device/cpu/precision.h"

namespace backendd::worker {
namespace {

using onednn::Direction;

// The convolution that runs: x, w, y as in a forward that is not transposed, and which operand of
// the operation each of them is. `bias` is added to, or `dbias` summed over, the channels of
// `biased`.
struct Problem {
  Direction direction;
  int x, w, y;
  int bias = -1, dbias = -1;
  int biased = -1;
};

Problem Resolve(const Builder& b) {
  const bool transposed = b.attributes<ConvolutionAttributes>().transposed;
  if (b.spec.kind == OpKind::kConvolutionForward) {
    const int bias = b.has(2) ? 2 : -1;
    if (transposed) return {Direction::kInputGradient, 3, 1, 0, bias, -1, 3};
    return {Direction::kForward, 0, 1, 3, bias, -1, 3};
  }
  if (b.spec.kind == OpKind::kConvolutionInputGradient) {
    if (transposed) return {Direction::kForward, 0, 1, 2};
    return {Direction::kInputGradient, 2, 1, 0};
  }
  const int dbias = b.has(3) ? 3 : -1;
  if (transposed) return {Direction::kWeightGradient, 1, 2, 0, -1, dbias, 1};
  return {Direction::kWeightGradient, 0, 2, 1, -1, dbias, 1};
}

int Result(const Problem& p) {
  if (p.direction == Direction::kForward) return p.y;
  return p.direction == Direction::kInputGradient ? p.x : p.w;
}

// Images of up to 3 spatial dimensions as 3.
struct Geometry {
  int64_t images, groups, in, out;  // channels per group
  int64_t x[3], y[3], kernel[3], stride[3], padding[3], dilation[3];

  int64_t x_plane() const { return x[0] * x[1] * x[2]; }
  int64_t y_plane() const { return y[0] * y[1] * y[2]; }
  int64_t window() const { return in * kernel[0] * kernel[1] * kernel[2]; }
};

Geometry MakeGeometry(const TensorType& x, const TensorType& w, const TensorType& y,
                      const ConvolutionAttributes& c) {
  Geometry g;
  g.images = x.shape[0];
  g.groups = c.groups;
  g.in = x.shape[1] / c.groups;
  g.out = y.shape[1] / c.groups;
  const int missing = 5 - x.rank();
  for (int i = 0; i < 3; ++i) {
    const int from = i - missing;
    const bool real = from >= 0;
    g.x[i] = real ? x.shape[from + 2] : 1;
    g.y[i] = real ? y.shape[from + 2] : 1;
    g.kernel[i] = real ? w.shape[from + 2] : 1;
    g.stride[i] = real ? c.stride[from] : 1;
    g.padding[i] = real ? c.padding[from] : 0;
    g.dilation[i] = real ? c.dilation[from] : 1;
  }
  return g;
}

// Every (row of the window matrix, output position) with the input position under it, or -1 in the
// padding. Rows follow one another as w's dimensions do.
template <class F>
void Windows(const Geometry& g, F&& f) {
  int64_t row = 0;
  for (int64_t c = 0; c < g.in; ++c) {
    for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0) {
      for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1) {
        for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2, ++row) {
          int64_t at = row * g.y_plane();
          for (int64_t o0 = 0; o0 < g.y[0]; ++o0) {
            const int64_t i0 = o0 * g.stride[0] - g.padding[0] + k0 * g.dilation[0];
            for (int64_t o1 = 0; o1 < g.y[1]; ++o1) {
              const int64_t i1 = o1 * g.stride[1] - g.padding[1] + k1 * g.dilation[1];
              const bool inside = i0 >= 0 && i0 < g.x[0] && i1 >= 0 && i1 < g.x[1];
              const int64_t base = ((c * g.x[0] + i0) * g.x[1] + i1) * g.x[2];
              for (int64_t o2 = 0; o2 < g.y[2]; ++o2, ++at) {
                const int64_t i2 = o2 * g.stride[2] - g.padding[2] + k2 * g.dilation[2];
                f(at, inside && i2 >= 0 && i2 < g.x[2] ? base + i2 : -1);
              }
            }
          }
        }
      }
    }
  }
}

void Multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* y, int64_t ldy) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
              k, 1, a, lda, b, ldb, beta, y, ldy);
}
void Multiply(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
              const double* b, int64_t ldb, double beta, double* y, int64_t ldy) {
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
              k, 1, a, lda, b, ldb, beta, y, ldy);
}

template <class T>
void ByMatrices(const Geometry& g, Direction direction, T* x, T* w, T* y, T* columns) {
  const int64_t window = g.window(), plane = g.y_plane();
  if (direction == Direction::kWeightGradient) {
    std::fill_n(w, g.groups * g.out * window, T(0));
  }
  for (int64_t image = 0; image < g.images; ++image) {
    for (int64_t group = 0; group < g.groups; ++group) {
      T* const xg = x + (image * g.groups + group) * g.in * g.x_plane();
      T* const wg = w + group * g.out * window;
      T* const yg = y + (image * g.groups + group) * g.out * plane;
      if (direction == Direction::kInputGradient) {
        Multiply(true, false, window, plane, g.out, wg, window, yg, plane, T(0), columns, plane);
        std::fill_n(xg, g.in * g.x_plane(), T(0));
        Windows(g, [&](int64_t at, int64_t from) {
          if (from >= 0) xg[from] += columns[at];
        });
        continue;
      }
      Windows(g, [&](int64_t at, int64_t from) { columns[at] = from >= 0 ? xg[from] : T(0); });
      if (direction == Direction::kForward) {
        Multiply(false, false, g.out, plane, window, wg, window, columns, plane, T(0), yg, plane);
      } else {
        Multiply(false, true, g.out, window, plane, yg, plane, columns, plane, T(1), wg, window);
      }
    }
  }
}

template <class T>
Kernel CopyView(const TensorType& from, const TensorType& to, int from_place, uint64_t from_offset,
                int to_place, uint64_t to_offset) {
  const auto nest = MakeNest<2>(std::array<const TensorType*, 2>{&from, &to});
  return [=](const Call& call) {
    const T* x = from_place >= 0 ? call.At<T>(from_place) : call.Work<T>(from_offset);
    T* y = to_place >= 0 ? call.At<T>(to_place) : call.Work<T>(to_offset);
    Map1(nest, x, y, [](T value) { return value; });
    return absl::OkStatus();
  };
}

template <class T>
absl::Status BuildByMatrices(Builder& b, const Problem& p, std::vector<Kernel>* steps) {
  const Geometry g =
      MakeGeometry(b.type(p.x), b.type(p.w), b.type(p.y), b.attributes<ConvolutionAttributes>());
  for (int64_t extent : {g.window(), g.y_plane(), g.out}) {
    if (extent > INT32_MAX) {
      return Error(Reason::kSizeTooLarge,
                   absl::StrCat("an extent of ", extent, " passes the library's 32-bit interface"));
    }
  }
  Choice& choice = b.plan.choice;
  choice.library = "openblas";
  choice.library_version = b.cpu.openblas_version;
  choice.algorithm = "im2col";
  const int result = Result(p);
  std::array<int, 3> places = {p.x, p.w, p.y};
  std::array<int64_t, 3> offsets = {-1, -1, -1};
  Kernel back;
  for (int i = 0; i < 3; ++i) {
    const TensorType& type = b.type(places[i]);
    if (type.row_major()) continue;
    const TensorType dense = RowMajor(type.dtype, type.shape);
    offsets[i] = b.Reserve(dense.elements() * sizeof(T));
    choice.copied_bytes += dense.elements() * sizeof(T);
    if (places[i] == result) {
      back = CopyView<T>(dense, type, -1, offsets[i], places[i], 0);
    } else {
      steps->push_back(CopyView<T>(type, dense, places[i], 0, -1, offsets[i]));
    }
  }
  const auto size = CheckedMul(g.window() * sizeof(T), g.y_plane());
  if (!size) return Error(Reason::kSizeTooLarge, "the window matrix passes 64 bits");
  const uint64_t columns = b.Reserve(*size);
  steps->push_back([=, direction = p.direction](const Call& call) {
    T* at[3];
    for (int i = 0; i < 3; ++i) {
      at[i] = offsets[i] < 0 ? call.At<T>(places[i]) : call.Work<T>(offsets[i]);
    }
    ByMatrices(g, direction, at[0], at[1], at[2], call.Work<T>(columns));
    return absl::OkStatus();
  });
  if (back) steps->push_back(std::move(back));
  return absl::OkStatus();
}

// Whether every element between the first and the last belongs to the view, in whatever order.
bool Dense(const TensorType& type) {
  return !type.overlaps_itself() &&
         SpanBytes(type) == type.elements() * static_cast<int64_t>(SizeOf(type.dtype));
}

absl::Status BuildByOneDnn(Builder& b, const Problem& p, std::vector<Kernel>* steps) {
  const auto& c = b.attributes<ConvolutionAttributes>();
  Choice& choice = b.plan.choice;
  onednn::ConvolutionProblem problem;
  problem.direction = p.direction;
  problem.stride = c.stride;
  problem.padding = c.padding;
  problem.dilation = c.dilation;
  problem.groups = c.groups;
  problem.threads = choice.threads;
  const int result = Result(p);
  const std::array<int, 3> places = {p.x, p.w, p.y};
  std::array<int64_t, 3> offsets = {-1, -1, -1};
  std::array<TensorType*, 3> types = {&problem.x, &problem.w, &problem.y};
  Kernel back;
  for (int i = 0; i < 3; ++i) {
    const TensorType& type = b.type(places[i]);
    *types[i] = type;
    // The library takes permuted dimensions, but not every view with holes or repeats.
    if (Dense(type)) continue;
    const TensorType dense = RowMajor(type.dtype, type.shape);
    offsets[i] = b.Reserve(dense.elements() * sizeof(float));
    choice.copied_bytes += dense.elements() * sizeof(float);
    *types[i] = dense;
    if (places[i] == result) {
      back = CopyView<float>(dense, type, -1, offsets[i], places[i], 0);
    } else {
      steps->push_back(CopyView<float>(type, dense, places[i], 0, -1, offsets[i]));
    }
  }
  problem.math = ChooseMath(b, b.cpu.flags.conv_precision, true);
  ASSIGN_OR_RETURN(onednn::Primitive primitive, onednn::MakeConvolution(problem));
  choice.library = "onednn";
  choice.library_version = b.cpu.onednn_version;
  choice.algorithm = primitive.implementation;
  choice.copied_bytes += primitive.copied_bytes;
  const uint64_t scratch = b.Reserve(primitive.scratch_bytes);
  const int first = p.direction == Direction::kInputGradient ? 2 : 0;
  const int second = p.direction == Direction::kWeightGradient ? 2 : 1;
  const int third = 3 - first - second;
  steps->push_back([=, run = primitive.run](const Call& call) {
    auto at = [&](int i) {
      return offsets[i] < 0 ? call.operands[places[i]] : call.Work<void>(offsets[i]);
    };
    return run(at(first), at(second), at(third), call.workspace + scratch);
  });
  if (back) steps->push_back(std::move(back));
  return absl::OkStatus();
}

template <class T>
Kernel AddBias(const TensorType& y, int y_place, const TensorType& bias, int bias_place) {
  TensorType wide = bias;  // [c] as [1, c, 1, ...]
  wide.shape.resize(y.shape.size() - 1, 1);
  wide.strides.resize(y.shape.size() - 1, 0);
  const auto nest = MakeNest<3>(std::array<const TensorType*, 3>{&y, &wide, &y});
  return [=](const Call& call) {
    T* at = call.At<T>(y_place);
    Map2(nest, at, call.At<T>(bias_place), at, [](T value, T more) { return value + more; });
    return absl::OkStatus();
  };
}

template <class T>
Kernel SumBias(const TensorType& dy, int dy_place, const TensorType& dbias, int dbias_place) {
  Extents others = dy.shape, strides = dy.strides;
  others.erase(others.begin() + 1);
  strides.erase(strides.begin() + 1);
  const auto nest = MakeNest<1>(others, {strides});
  return
      [=, channels = dy.shape[1], step = dy.strides[1], out = dbias.strides[0]](const Call& call) {
        for (int64_t c = 0; c < channels; ++c) {
          const T* x = call.At<T>(dy_place) + c * step;
          double sum = 0;
          Walk(nest, [&](const Nest<1>::Steps& at) {
            for (int64_t i = 0; i < nest.count; ++i) sum += x[at[0] + i * nest.inner[0]];
          });
          call.At<T>(dbias_place)[c * out] = static_cast<T>(sum);
        }
        return absl::OkStatus();
      };
}

template <class T>
Kernel Zero(const TensorType& type, int place) {
  const auto nest = MakeNest<1>(std::array<const TensorType*, 1>{&type});
  return [=](const Call& call) {
    T* y = call.At<T>(place);
    Walk(nest, [&](const Nest<1>::Steps& at) {
      for (int64_t i = 0; i < nest.count; ++i) y[at[0] + i * nest.inner[0]] = T(0);
    });
    return absl::OkStatus();
  };
}

template <class T>
absl::Status Build(Builder& b) {
  const Problem p = Resolve(b);
  const TensorType &x = b.type(p.x), &w = b.type(p.w), &y = b.type(p.y);
  const int result = Result(p);
  Choice& choice = b.plan.choice;
  choice.candidates = {"onednn", "im2col"};
  std::vector<Kernel> steps;
  double window = 1;
  for (size_t i = 1; i < w.shape.size(); ++i) window *= w.shape[i];
  const double flops = 2 * window * y.elements();
  choice.threads = flops > 4e6 ? b.cpu.threads : 1;
  // An empty batch: nothing to compute, a weight gradient of 0.
  const bool empty = x.elements() == 0 || y.elements() == 0;
  const bool by_onednn = std::is_same_v<T, float> && b.On(b.cpu.flags.mkldnn_enabled);
  if (empty) {
    choice.library = "own";
    choice.algorithm = "empty";
    if (b.type(result).elements() > 0) steps.push_back(Zero<T>(b.type(result), result));
  } else if (by_onednn) {
    RETURN_IF_ERROR(BuildByOneDnn(b, p, &steps));
  } else {
    if (std::is_same_v<T, float>) ChooseMath(b, b.cpu.flags.conv_precision, false);
    RETURN_IF_ERROR(BuildByMatrices<T>(b, p, &steps));
  }
  if (p.bias >= 0 && !empty) {
    steps.push_back(AddBias<T>(b.type(p.biased), p.biased, b.type(p.bias), p.bias));
  }
  if (p.dbias >= 0) {
    steps.push_back(SumBias<T>(b.type(p.biased), p.biased, b.type(p.dbias), p.dbias));
  }
  b.Cost(flops, sizeof(T) * (x.elements() + w.elements() + y.elements()));
  b.plan.kernel = [steps = std::move(steps)](const Call& call) {
    for (const Kernel& step : steps) RETURN_IF_ERROR(step(call));
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status BuildConvolution(Builder& b) {
  return ByFloat(b.type(0).dtype, KindName(b.spec.kind),
                 [&](auto type) { return Build<decltype(type)>(b); });
}

constexpr KernelRow kRows[] = {{OpKind::kConvolutionForward, BuildConvolution},
                               {OpKind::kConvolutionInputGradient, BuildConvolution},
                               {OpKind::kConvolutionWeightGradient, BuildConvolution}};

}  // namespace

absl::Span<const KernelRow> ConvolutionKernels() { return kRows; }

}  // namespace backendd::worker
