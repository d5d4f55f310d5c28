// sparse24_prune, _check, _compress, _matmul.
#include "shared/operation/family.h"

namespace backendd {
namespace {

void DecodePrune(const v1::Operation& operation, Reader& r) {
  const v1::Sparse24Prune& m = operation.sparse24_prune();
  r.In("a", m.has_a(), m.a());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("mask", m.has_mask(), m.mask());
  r.out().spec.attributes = Sparse24Attributes{};
}

void DecodeCheck(const v1::Operation& operation, Reader& r) {
  const v1::Sparse24Check& m = operation.sparse24_check();
  r.In("a", m.has_a(), m.a());
  r.Out("valid", m.has_valid(), m.valid());
  r.Out("first_bad_group", m.has_first_bad_group(), m.first_bad_group());
  r.out().spec.attributes = Sparse24Attributes{};
}

void DecodeCompress(const v1::Operation& operation, Reader& r) {
  const v1::Sparse24Compress& m = operation.sparse24_compress();
  r.In("a", m.has_a(), m.a());
  r.Out("values", m.has_values(), m.values());
  r.Out("indices", m.has_indices(), m.indices());
  r.out().spec.attributes = Sparse24Attributes{};
}

void DecodeMatmul(const v1::Operation& operation, Reader& r) {
  const v1::Sparse24Matmul& m = operation.sparse24_matmul();
  r.In("values", m.has_values(), m.values());
  r.In("indices", m.has_indices(), m.indices());
  r.In("b", m.has_b(), m.b());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = Sparse24Attributes{};
}

// [m, k] of rows in whole groups.
bool Groups(Check& check) {
  check.Floating(0);
  check.Rank(0, 2, 2);
  if (check.ok() && check.shape(0)[1] % 4 != 0) {
    check.Bad(0, Reason::kShapeInvalid,
              absl::StrCat("has rows of ", check.shape(0)[1], ", no multiple of 4"));
  }
  return check.ok();
}

void InferPrune(Check& check) {
  if (!Groups(check)) return;
  check.Output(1, check.dtype(0), check.shape(0));
  check.Output(2, DType::kBool, check.shape(0));
}

void InferCheck(Check& check) {
  if (!Groups(check)) return;
  check.Output(1, DType::kBool, {1});
  check.Output(2, DType::kS64, {1});
}

void InferCompress(Check& check) {
  if (!Groups(check)) return;
  const Extents half = {check.shape(0)[0], check.shape(0)[1] / 2};
  check.Output(1, check.dtype(0), half);
  check.Output(2, DType::kU8, half);
}

void InferMatmul(Check& check) {
  check.Floating(0);
  check.Rank(0, 2, 2);
  check.Rank(2, 2, 2);
  check.Dtype(1, DType::kU8);
  check.Dtype(2, check.dtype(0));
  check.Dtype(3, check.dtype(0));
  if (!check.ok()) return;
  const Extents &values = check.shape(0), &b = check.shape(2);
  check.Shape(1, values);
  if (values[1] % 2 != 0) check.Bad(0, Reason::kShapeInvalid, "has rows of no whole group");
  if (b[0] != 2 * values[1]) {
    check.Bad(
        2, Reason::kShapeInvalid,
        absl::StrCat("has ", b[0], " rows; the expanded matrix has ", 2 * values[1], " columns"));
  }
  const Extents y = {values[0], b[1]};
  check.Shape(3, {y[1]});
  check.Output(4, check.dtype(0), y);
}

constexpr Family kFamilies[] = {
    {OpKind::kSparse24Prune, "sparse24_prune", DecodePrune, InferPrune},
    {OpKind::kSparse24Check, "sparse24_check", DecodeCheck, InferCheck},
    {OpKind::kSparse24Compress, "sparse24_compress", DecodeCompress, InferCompress},
    {OpKind::kSparse24Matmul, "sparse24_matmul", DecodeMatmul, InferMatmul},
};

}  // namespace

absl::Span<const Family> SparseFamilies() { return kFamilies; }

}  // namespace backendd
