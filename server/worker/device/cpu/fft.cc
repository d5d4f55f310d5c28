// fft by the FFTW module. What FFTW does not: padding, conjugation of the other exponent, scaling.
#include <cmath>
#include <complex>
#include <memory>

#include "server/worker/device/cpu/fftw_module.h"
#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"

namespace backendd::worker {
namespace {

bool FromReal(v1::FftKind kind) {
  return kind == v1::FFT_KIND_R2C || kind == v1::FFT_KIND_R2C_INVERSE;
}
bool ToReal(v1::FftKind kind) {
  return kind == v1::FFT_KIND_C2R || kind == v1::FFT_KIND_C2R_FORWARD;
}
// exponent +
bool Inverse(v1::FftKind kind) {
  return kind == v1::FFT_KIND_C2C_INVERSE || kind == v1::FFT_KIND_C2R ||
         kind == v1::FFT_KIND_R2C_INVERSE;
}

int32_t ModuleKind(v1::FftKind kind) {
  if (FromReal(kind)) return BACKENDD_FFTW_R2C;
  if (ToReal(kind)) return BACKENDD_FFTW_C2R;
  return kind == v1::FFT_KIND_C2C_FORWARD ? BACKENDD_FFTW_FORWARD : BACKENDD_FFTW_BACKWARD;
}

template <class T>
T Conjugate(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return value;
  } else {
    return std::conj(value);
  }
}

// x in the workspace: cut, padded with zeros, conjugated where asked for.
template <class X>
Kernel Stage(const TensorType& x, const TensorType& dense, uint64_t offset, bool conjugate) {
  Extents common = x.shape;
  for (size_t i = 0; i < common.size(); ++i) common[i] = std::min(common[i], dense.shape[i]);
  const auto nest = MakeNest<2>(common, {x.strides, dense.strides});
  const int64_t count = dense.elements();
  const bool pads = common != dense.shape;
  return [=](const Call& call) {
    X* const to = call.Work<X>(offset);
    if (pads) std::fill_n(to, count, X(0));
    if (conjugate) {
      Map1(nest, call.At<X>(0), to, [](X value) { return Conjugate(value); });
    } else {
      Map1(nest, call.At<X>(0), to, [](X value) { return value; });
    }
    return absl::OkStatus();
  };
}

// y = scale y, conjugated where asked for.
template <class Y>
Kernel Finish(const TensorType& y, double scale, bool conjugate) {
  using Real = decltype(std::abs(Y{}));
  const auto nest = MakeNest<2>(std::array<const TensorType*, 2>{&y, &y});
  return [nest, scale = static_cast<Real>(scale), conjugate](const Call& call) {
    Y* const at = call.At<Y>(1);
    if (conjugate) {
      Map1(nest, at, at, [scale](Y value) { return Conjugate(value) * scale; });
    } else {
      Map1(nest, at, at, [scale](Y value) { return value * scale; });
    }
    return absl::OkStatus();
  };
}

template <class X, class Y>
absl::Status Build(Builder& b) {
  const auto& a = b.attributes<FftAttributes>();
  const TensorType &x = b.type(0), &y = b.type(1);
  Choice& choice = b.plan.choice;
  choice.candidates = {"fftw"};
  const std::string preferred = b.Text(b.cpu.flags.fft);
  if (preferred == "mkl" || preferred == "native") {
    b.Unmet(b.cpu.flags.fft, std::string("fftw"), "NOT_BUILT",
            absl::StrCat(preferred, " is not built in"));
  }
  if (y.elements() == 0) {
    choice.library = "own";
    choice.algorithm = "empty";
    b.plan.kernel = [](const Call&) { return absl::OkStatus(); };
    return absl::OkStatus();
  }
  if (b.cpu.fftw == nullptr) {
    return Error(Reason::kNoKernel, "no library computes fft here",
                 {{"operation", "fft"}, {"fftw", b.cpu.fftw_missing}});
  }
  const backendd_fftw_module& module = *b.cpu.fftw;

  // The extents that the library reads, and the lengths of the transforms.
  Extents reads = x.shape;
  Extents lengths;
  double total = 1;
  for (size_t i = 0; i < a.dims.size(); ++i) {
    const int64_t dim = a.dims[i];
    const bool last = i + 1 == a.dims.size();
    const int64_t n = ToReal(a.kind) && last     ? y.shape[dim]
                      : FromReal(a.kind) && last ? (a.n.empty() ? x.shape[dim] : a.n[i])
                                                 : y.shape[dim];
    lengths.push_back(n);
    total *= n;
    reads[dim] = ToReal(a.kind) && last ? n / 2 + 1 : n;
  }
  const bool conjugates = a.kind == v1::FFT_KIND_C2R_FORWARD;
  bool staged = ToReal(a.kind);  // the library destroys the input of a c2r
  for (int i = 0; i < x.rank(); ++i) staged = staged || reads[i] > x.shape[i];

  std::vector<Kernel> steps;
  TensorType input = x;
  uint64_t offset = 0;
  if (staged) {
    input = RowMajor(x.dtype, reads);
    offset = b.Reserve(input.elements() * sizeof(X));
    choice.copied_bytes += input.elements() * sizeof(X);
    steps.push_back(Stage<X>(x, input, offset, conjugates));
  }
  backendd_fftw_request request{};
  request.kind = ModuleKind(a.kind);
  request.wide = sizeof(decltype(std::abs(X{}))) == sizeof(double);
  request.rank = static_cast<int32_t>(a.dims.size());
  for (size_t i = 0; i < a.dims.size(); ++i) {
    request.dims[i] = {lengths[i], input.strides[a.dims[i]], y.strides[a.dims[i]]};
  }
  for (int i = 0; i < y.rank(); ++i) {
    if (std::find(a.dims.begin(), a.dims.end(), i) != a.dims.end()) continue;
    request.batch[request.batch_rank++] = {y.shape[i], input.strides[i], y.strides[i]};
  }
  request.measure = a.rigor == v1::FFT_RIGOR_MEASURE;
  auto aligned = [&](size_t place) {
    return b.alignment.size() > place && b.alignment[place] >= 4;
  };
  request.aligned = (staged || aligned(0)) && aligned(1);
  request.keep_input = !staged;
  request.in_bytes = SpanBytes(input).value_or(0);
  request.out_bytes = SpanBytes(y).value_or(0);
  const std::shared_ptr<const void> plan(module.plan(&request), [&module](const void* made) {
    if (made != nullptr) module.destroy(const_cast<void*>(made));
  });
  if (plan == nullptr) {
    return Error(Reason::kNoKernel, "FFTW has no plan for this transform", {{"operation", "fft"}});
  }
  choice.library = "fftw";
  choice.library_version = module.version;
  choice.algorithm = request.measure ? "measure" : "estimate";
  steps.push_back([plan, &module, staged, offset](const Call& call) {
    module.execute(plan.get(), staged ? call.Work<void>(offset) : call.operands[0],
                   call.operands[1]);
    return absl::OkStatus();
  });
  double scale = 1;
  if (a.norm == v1::FFT_NORM_ORTHO) {
    scale = 1 / std::sqrt(total);
  } else if ((a.norm == v1::FFT_NORM_BACKWARD) == Inverse(a.kind)) {
    scale = 1 / total;
  }
  const bool conjugates_result = a.kind == v1::FFT_KIND_R2C_INVERSE;
  if (scale != 1 || conjugates_result) steps.push_back(Finish<Y>(y, scale, conjugates_result));
  b.plan.host_bytes = 4096 + static_cast<uint64_t>(total) * sizeof(X);  // twiddles
  const double n = std::max<double>(x.elements(), y.elements());
  b.Cost(5 * n * std::log2(std::max(2.0, total)), n * (sizeof(X) + sizeof(Y)));
  b.plan.kernel = [steps = std::move(steps)](const Call& call) {
    for (const Kernel& step : steps) RETURN_IF_ERROR(step(call));
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status BuildFft(Builder& b) {
  const auto kind = b.attributes<FftAttributes>().kind;
  const bool wide = RealOf(b.type(0).dtype) == DType::kF64;
  using C32 = std::complex<float>;
  using C64 = std::complex<double>;
  if (FromReal(kind)) return wide ? Build<double, C64>(b) : Build<float, C32>(b);
  if (ToReal(kind)) return wide ? Build<C64, double>(b) : Build<C32, float>(b);
  return wide ? Build<C64, C64>(b) : Build<C32, C32>(b);
}

constexpr KernelRow kRows[] = {{OpKind::kFft, BuildFft}};

}  // namespace

absl::Span<const KernelRow> FftKernels() { return kRows; }

}  // namespace backendd::worker
