// fft.
#include <algorithm>

#include "shared/operation/family.h"

namespace backendd {
namespace {

void DecodeFft(const v1::Operation& operation, Reader& r) {
  const v1::Fft& m = operation.fft();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  FftAttributes a;
  a.kind = r.Enum("kind", m.kind(), v1::FFT_KIND_C2C_FORWARD, v1::FftKind_IsValid);
  a.norm = r.Enum("norm", m.norm(), v1::FFT_NORM_BACKWARD, v1::FftNorm_IsValid);
  a.rigor = r.Enum("rigor", m.rigor(), v1::FFT_RIGOR_ESTIMATE, v1::FftRigor_IsValid);
  const int rank = r.type(0).rank();
  if (m.dims_size() < 1 || m.dims_size() > 3) {
    r.Bad("dims", absl::StrCat("has ", m.dims_size(), " numbers; allowed: 1 to 3"));
    return;
  }
  if (rank == 0) {
    r.Bad("dims", "names a dimension of a scalar");
    return;
  }
  for (int64_t dim : m.dims()) {
    const int64_t at = r.Dim("dims", dim, rank);
    if (std::find(a.dims.begin(), a.dims.end(), at) != a.dims.end()) {
      r.Bad("dims", "names a dimension twice");
    }
    a.dims.push_back(at);
  }
  if (m.n_size() > 0 && m.n_size() != m.dims_size()) {
    r.Bad("n", absl::StrCat("has ", m.n_size(), " numbers for ", m.dims_size(), " dims"));
    return;
  }
  a.n.assign(m.n().begin(), m.n().end());
  for (int64_t n : a.n) {
    if (n < 1 || n > kMaxExtent) r.Bad("n", absl::StrCat("is ", n, "; allowed: 1 or more"));
  }
  r.out().spec.attributes = a;
}

void InferFft(Check& check) {
  const auto& a = check.attributes<FftAttributes>();
  const bool from_real = a.kind == v1::FFT_KIND_R2C || a.kind == v1::FFT_KIND_R2C_INVERSE;
  const bool to_real = a.kind == v1::FFT_KIND_C2R || a.kind == v1::FFT_KIND_C2R_FORWARD;
  const DType x = check.dtype(0);
  const bool right = from_real ? (x == DType::kF32 || x == DType::kF64) : IsComplex(x);
  if (!right) {
    check.Bad(
        0, Reason::kDtypeInvalid,
        absl::StrCat("is ", Name(x), "; this kind takes ", from_real ? "f32, f64" : "c64, c128"));
    return;
  }
  Extents y = check.shape(0);
  for (size_t i = 0; i < a.dims.size(); ++i) {
    int64_t& extent = y[a.dims[i]];
    const bool last = i + 1 == a.dims.size();
    int64_t n = a.n.empty() ? (last && to_real ? 2 * (extent - 1) : extent) : a.n[i];
    if (n < 1) {
      check.BadAttribute("n", absl::StrCat("comes to ", n, " in dimension ", a.dims[i]));
      return;
    }
    extent = last && from_real ? n / 2 + 1 : n;
  }
  const bool wide = RealOf(x) == DType::kF64;
  const DType complex = wide ? DType::kC128 : DType::kC64;
  check.Output(1, to_real ? RealOf(x) : complex, y);
}

constexpr Family kFamilies[] = {{OpKind::kFft, "fft", DecodeFft, InferFft}};

}  // namespace

absl::Span<const Family> TransformFamilies() { return kFamilies; }

}  // namespace backendd
