// gemm.
#include <cmath>
#include <utility>

#include "shared/operation/gemm.h"

namespace backendd {
namespace {

enum { kA, kB, kC, kBias, kY };

void DecodeGemm(const v1::Operation& operation, Reader& r) {
  const v1::Gemm& m = operation.gemm();
  r.In("a", m.has_a(), m.a());
  r.In("b", m.has_b(), m.b());
  r.MaybeIn("c", m.has_c(), m.c());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = ReadGemm(m, r, IsInteger(r.type(kA).dtype));
}

bool Float8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

// The dtype of y for a product of these two; kUnspecified where nobody multiplies them.
DType ProductType(DType a, DType b) {
  if (Float8(a) && Float8(b)) return DType::kF32;
  if ((a == DType::kS8 || a == DType::kU8) && b == DType::kS8) return DType::kS32;
  if (a != b) return DType::kUnspecified;
  return IsComplex(a) || (IsFloating(a) && !Float8(a)) ? a : DType::kUnspecified;
}

void InferGemm(Check& check) {
  const auto& g = check.attributes<GemmAttributes>();
  const DType a = check.dtype(kA), b = check.dtype(kB);
  DType product = ProductType(a, b);
  if (product == DType::kUnspecified) {
    check.Bad(kB, Reason::kDtypeInvalid,
              absl::StrCat("is ", Name(b), ", which is not multiplied with ", Name(a)));
    return;
  }
  // A narrow product may be taken wide.
  const DType asked = check.dtype(kY);
  const bool narrow = SizeOf(a) <= 2 && IsFloating(a);
  if (narrow && (asked == DType::kF32 || asked == DType::kF16 || asked == DType::kBf16 ||
                 asked == DType::kF64)) {
    product = asked;
  }
  check.Rank(kA, 2, kMaxRank);
  check.Rank(kB, 2, kMaxRank);
  if (!IsComplex(product) && (g.alpha.imag() != 0 || g.beta.imag() != 0)) {
    check.BadAttribute("alpha", "is complex where the operands are not");
  }
  if (IsComplex(product) && g.epilogue != v1::EPILOGUE_NONE) {
    check.BadAttribute("epilogue", "has no meaning for complex numbers");
  }
  if (product == DType::kS32) {
    // Sums stay in the integers.
    for (auto [name, factor] : {std::pair("alpha", g.alpha), std::pair("beta", g.beta)}) {
      if (factor.imag() != 0 || std::fabs(factor.real()) > INT32_MAX ||
          factor.real() != std::nearbyint(factor.real())) {
        check.BadAttribute(name, "is no integer where the operands are");
      }
    }
    if (g.scale_a != 1) check.BadAttribute("scale_a", "is not 1 where the operands are integers");
    if (g.scale_b != 1) check.BadAttribute("scale_b", "is not 1 where the operands are integers");
    if (g.epilogue != v1::EPILOGUE_NONE && g.epilogue != v1::EPILOGUE_RELU) {
      check.BadAttribute("epilogue", "has no meaning for integers; allowed: none, relu");
    }
    if (g.accumulate != v1::ACCUMULATE_S32) {
      check.BadAttribute("accumulate", "must be s32 where the operands are integers");
    }
  } else if (g.accumulate == v1::ACCUMULATE_S32) {
    check.BadAttribute("accumulate", "is s32 where the operands are no integers");
  }
  if (!check.ok()) return;
  const Extents& sa = check.shape(kA);
  const Extents& sb = check.shape(kB);
  const bool ta = g.trans_a != v1::TRANSPOSE_N, tb = g.trans_b != v1::TRANSPOSE_N;
  const size_t ra = sa.size(), rb = sb.size();
  const int64_t m = sa[ra - 1 - (ta ? 0 : 1)], k = sa[ra - 1 - (ta ? 1 : 0)];
  const int64_t kb = sb[rb - 1 - (tb ? 0 : 1)], n = sb[rb - 1 - (tb ? 1 : 0)];
  if (k != kb) {
    check.Bad(kB, Reason::kShapeInvalid,
              absl::StrCat("has an inner extent of ", kb, "; a has ", k));
    return;
  }
  const auto batch =
      BroadcastShapes(absl::MakeConstSpan(sa).first(ra - 2), absl::MakeConstSpan(sb).first(rb - 2));
  if (!batch) {
    check.Bad(kB, Reason::kShapeInvalid, "has batch extents that do not broadcast with a's");
    return;
  }
  Extents y = *batch;
  y.push_back(m);
  y.push_back(n);
  check.Output(kY, product, y);
  check.Dtype(kC, product);
  if (check.has(kC)) {
    const auto together = BroadcastShapes(check.shape(kC), y);
    if (!together || *together != y) {
      check.Bad(kC, Reason::kShapeInvalid, "does not broadcast to y");
    }
  } else if (g.beta != 0.0) {
    check.BadAttribute("beta", "is not 0 and there is no c");
  }
  check.Dtype(kBias, product);
  check.Shape(kBias, {n});
}

constexpr Family kFamilies[] = {{OpKind::kGemm, "gemm", DecodeGemm, InferGemm}};

}  // namespace

absl::Span<const Family> MultiplyFamilies() { return kFamilies; }

}  // namespace backendd
