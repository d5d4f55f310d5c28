// inv, solve, cholesky, lu, qr, det, eigh, svd, lstsq.
#include <algorithm>

#include "shared/operation/family.h"

namespace backendd {
namespace {

constexpr int kA = 0;

bool Number(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || IsComplex(dtype);
}

// [..., m, n] in one of the four types; square where it must be.
bool Matrix(Check& check, bool square) {
  const DType dtype = check.dtype(kA);
  if (!Number(dtype)) {
    check.Bad(kA, Reason::kDtypeInvalid,
              absl::StrCat("is ", Name(dtype), "; allowed: f64, f32, c128, c64"));
  }
  check.Rank(kA, 2, kMaxRank);
  if (!check.ok()) return false;
  const Extents& shape = check.shape(kA);
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  if (square && m != n) {
    check.Bad(kA, Reason::kShapeInvalid, absl::StrCat("is ", m, " x ", n, "; it must be square"));
  }
  return check.ok();
}

Extents Batch(const Extents& shape, size_t matrix_rank = 2) {
  return Extents(shape.begin(), shape.end() - matrix_rank);
}

Extents With(Extents batch, std::initializer_list<int64_t> last) {
  batch.insert(batch.end(), last.begin(), last.end());
  return batch;
}

void DecodeInv(const v1::Operation& operation, Reader& r) {
  const v1::Inv& m = operation.inv();
  r.In("a", m.has_a(), m.a());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("info", m.has_info(), m.info());
  r.out().spec.attributes = InvAttributes{};
}

void InferInv(Check& check) {
  if (!Matrix(check, true)) return;
  check.Output(1, check.dtype(kA), check.shape(kA));
  check.Output(2, DType::kS32, Batch(check.shape(kA)));
}

void DecodeSolve(const v1::Operation& operation, Reader& r) {
  const v1::Solve& m = operation.solve();
  r.In("a", m.has_a(), m.a());
  r.In("b", m.has_b(), m.b());
  r.Out("x", m.has_x(), m.x());
  r.MaybeOut("info", m.has_info(), m.info());
  r.out().spec.attributes = SolveAttributes{!m.has_left() || m.left()};
}

// The shape of x for matrices a and right sides b; b is vectors where it has rank 1 or a's batch.
void RightSides(Check& check, bool left, int64_t rows, int64_t x_rows) {
  const Extents &a = check.shape(kA), &b = check.shape(1);
  check.Dtype(1, check.dtype(kA));
  check.Rank(1, 1, kMaxRank);
  if (!check.ok()) return;
  const bool vectors = RightSidesAreVectors(a, b);
  if (vectors && !left) {
    check.Bad(1, Reason::kShapeInvalid, "is vectors, which cannot stand left of a matrix");
    return;
  }
  const int64_t given = vectors || !left ? b.back() : b[b.size() - 2];
  if (given != rows) {
    check.Bad(1, Reason::kShapeInvalid, absl::StrCat("has an extent of ", given, " for ", rows));
    return;
  }
  const auto batch = BroadcastShapes(Batch(a), Batch(b, vectors ? 1 : 2));
  if (!batch) {
    check.Bad(1, Reason::kShapeInvalid, "has batch extents that do not broadcast with a's");
    return;
  }
  Extents x = *batch;
  if (!left) x.push_back(b[b.size() - 2]);
  x.push_back(x_rows);
  if (left && !vectors) x.push_back(b.back());
  check.Output(2, check.dtype(kA), x);
}

void InferSolve(Check& check) {
  if (!Matrix(check, true)) return;
  const int64_t n = check.shape(kA).back();
  RightSides(check, check.attributes<SolveAttributes>().left, n, n);
  check.Output(3, DType::kS32, Batch(check.shape(kA)));
}

void DecodeCholesky(const v1::Operation& operation, Reader& r) {
  const v1::Cholesky& m = operation.cholesky();
  r.In("a", m.has_a(), m.a());
  r.Out("l", m.has_l(), m.l());
  r.MaybeOut("info", m.has_info(), m.info());
  r.out().spec.attributes = CholeskyAttributes{m.upper()};
}

void DecodeLu(const v1::Operation& operation, Reader& r) {
  const v1::Lu& m = operation.lu();
  r.In("a", m.has_a(), m.a());
  r.Out("lu", m.has_lu(), m.lu());
  r.Out("pivots", m.has_pivots(), m.pivots());
  r.MaybeOut("info", m.has_info(), m.info());
  r.MaybeOut("p", m.has_p(), m.p());
  r.MaybeOut("l", m.has_l(), m.l());
  r.MaybeOut("u", m.has_u(), m.u());
  r.out().spec.attributes = LuAttributes{!m.has_pivot() || m.pivot()};
}

void InferLu(Check& check) {
  if (!Matrix(check, false)) return;
  const Extents shape = check.shape(kA), batch = Batch(shape);
  const DType dtype = check.dtype(kA);
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  check.Output(1, dtype, shape);
  check.Output(2, DType::kS32, With(batch, {k}));
  check.Output(3, DType::kS32, batch);
  check.Output(4, dtype, With(batch, {m, m}));
  check.Output(5, dtype, With(batch, {m, k}));
  check.Output(6, dtype, With(batch, {k, n}));
}

void DecodeQr(const v1::Operation& operation, Reader& r) {
  const v1::Qr& m = operation.qr();
  r.In("a", m.has_a(), m.a());
  r.MaybeOut("q", m.has_q(), m.q());
  r.Out("r", m.has_r(), m.r());
  QrAttributes a;
  a.mode = r.Enum("mode", m.mode(), v1::QR_MODE_REDUCED, v1::QrMode_IsValid);
  if ((a.mode == v1::QR_MODE_R) == m.has_q()) {
    r.Bad("q", m.has_q() ? "has no meaning with mode r" : "is missing");
  }
  r.out().spec.attributes = a;
}

void InferQr(Check& check) {
  if (!Matrix(check, false)) return;
  const Extents shape = check.shape(kA), batch = Batch(shape);
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  const bool complete = check.attributes<QrAttributes>().mode == v1::QR_MODE_COMPLETE;
  const int64_t k = complete ? m : std::min(m, n);
  check.Output(1, check.dtype(kA), With(batch, {m, k}));
  check.Output(2, check.dtype(kA), With(batch, {k, n}));
}

void DecodeDet(const v1::Operation& operation, Reader& r) {
  const v1::Det& m = operation.det();
  r.In("a", m.has_a(), m.a());
  r.MaybeOut("det", m.has_det(), m.det());
  r.MaybeOut("sign", m.has_sign(), m.sign());
  r.MaybeOut("log_abs_det", m.has_log_abs_det(), m.log_abs_det());
  r.out().spec.attributes = DetAttributes{};
}

void InferDet(Check& check) {
  if (!Matrix(check, true)) return;
  const Extents batch = Batch(check.shape(kA));
  check.Output(1, check.dtype(kA), batch);
  check.Output(2, check.dtype(kA), batch);
  check.Output(3, RealOf(check.dtype(kA)), batch);
}

void DecodeEigh(const v1::Operation& operation, Reader& r) {
  const v1::Eigh& m = operation.eigh();
  r.In("a", m.has_a(), m.a());
  r.Out("w", m.has_w(), m.w());
  r.MaybeOut("v", m.has_v(), m.v());
  r.MaybeOut("info", m.has_info(), m.info());
  r.out().spec.attributes =
      EighAttributes{r.Enum("uplo", m.uplo(), v1::TRIANGLE_L, v1::Triangle_IsValid)};
}

void InferEigh(Check& check) {
  if (!Matrix(check, true)) return;
  const Extents shape = check.shape(kA), batch = Batch(shape);
  check.Output(1, RealOf(check.dtype(kA)), With(batch, {shape.back()}));
  check.Output(2, check.dtype(kA), shape);
  check.Output(3, DType::kS32, batch);
}

void DecodeSvd(const v1::Operation& operation, Reader& r) {
  const v1::Svd& m = operation.svd();
  r.In("a", m.has_a(), m.a());
  r.MaybeOut("u", m.has_u(), m.u());
  r.Out("s", m.has_s(), m.s());
  r.MaybeOut("vh", m.has_vh(), m.vh());
  r.MaybeOut("info", m.has_info(), m.info());
  r.out().spec.attributes = SvdAttributes{!m.has_full_matrices() || m.full_matrices()};
}

void InferSvd(Check& check) {
  if (!Matrix(check, false)) return;
  const Extents shape = check.shape(kA), batch = Batch(shape);
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  const bool full = check.attributes<SvdAttributes>().full_matrices;
  check.Output(1, check.dtype(kA), With(batch, {m, full ? m : k}));
  check.Output(2, RealOf(check.dtype(kA)), With(batch, {k}));
  check.Output(3, check.dtype(kA), With(batch, {full ? n : k, n}));
  check.Output(4, DType::kS32, batch);
}

void DecodeLstsq(const v1::Operation& operation, Reader& r) {
  const v1::Lstsq& m = operation.lstsq();
  r.In("a", m.has_a(), m.a());
  r.In("b", m.has_b(), m.b());
  r.Out("x", m.has_x(), m.x());
  r.MaybeOut("residuals", m.has_residuals(), m.residuals());
  r.MaybeOut("rank", m.has_rank(), m.rank());
  r.MaybeOut("singular_values", m.has_singular_values(), m.singular_values());
  LstsqAttributes a;
  a.driver = r.Enum("driver", m.driver(), v1::LSTSQ_DRIVER_GELSY, v1::LstsqDriver_IsValid);
  if (m.has_rcond()) a.rcond = m.rcond();
  if (m.has_rcond() && !(m.rcond() >= 0)) r.Bad("rcond", "must be 0 or more");
  r.out().spec.attributes = a;
}

// residuals [..., k] (vectors: [...]), rank [...], singular_values [..., min(m, n)].
void InferLstsq(Check& check) {
  if (!Matrix(check, false)) return;
  const Extents shape = check.shape(kA);
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  RightSides(check, true, m, n);
  if (!check.ok()) return;
  const Extents& x = check.shape(2);
  const bool vectors = RightSidesAreVectors(shape, check.shape(1));
  const Extents batch = Batch(x, vectors ? 1 : 2);
  const DType real = RealOf(check.dtype(kA));
  check.Output(3, real, vectors ? batch : With(batch, {x.back()}));
  check.Output(4, DType::kS64, batch);
  check.Output(5, real, With(batch, {std::min(m, n)}));
}

constexpr Family kFamilies[] = {
    {OpKind::kInv, "inv", DecodeInv, InferInv},
    {OpKind::kSolve, "solve", DecodeSolve, InferSolve},
    {OpKind::kCholesky, "cholesky", DecodeCholesky, InferInv},
    {OpKind::kLu, "lu", DecodeLu, InferLu},
    {OpKind::kQr, "qr", DecodeQr, InferQr},
    {OpKind::kDet, "det", DecodeDet, InferDet},
    {OpKind::kEigh, "eigh", DecodeEigh, InferEigh},
    {OpKind::kSvd, "svd", DecodeSvd, InferSvd},
    {OpKind::kLstsq, "lstsq", DecodeLstsq, InferLstsq},
};

}  // namespace

bool RightSidesAreVectors(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  return b.size() == 1 || (b.size() + 1 == a.size() && b == a.first(a.size() - 1));
}

absl::Span<const Family> LinalgFamilies() { return kFamilies; }

}  // namespace backendd
