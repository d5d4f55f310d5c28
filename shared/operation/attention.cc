// sdpa and its gradient.
#include <algorithm>
#include <cmath>

#include "shared/operation/family.h"

namespace backendd {
namespace {

template <class M>
void ReadSdpa(const M& m, Reader& r) {
  SdpaAttributes a;
  a.is_causal = m.is_causal();
  const TensorType& q = r.type(0);
  const int64_t width = q.rank() > 0 ? q.shape.back() : 1;
  a.scale = m.has_scale() ? m.scale() : width > 0 ? 1 / std::sqrt(static_cast<double>(width)) : 1;
  a.enable_gqa = m.enable_gqa();
  a.dropout_p = m.dropout_p();
  if (!(a.dropout_p >= 0 && a.dropout_p < 1)) r.Bad("dropout_p", "is not in [0, 1)");
  if (a.is_causal && m.has_mask()) r.Bad("is_causal", "excludes a mask");
  r.out().spec.attributes = a;
}

void DecodeSdpa(const v1::Operation& operation, Reader& r) {
  const v1::Sdpa& m = operation.sdpa();
  r.In("q", m.has_q(), m.q());
  r.In("k", m.has_k(), m.k());
  r.In("v", m.has_v(), m.v());
  r.MaybeIn("mask", m.has_mask(), m.mask());
  r.Add("rng", m.has_rng(), m.rng(), Use::kInOut, m.dropout_p() > 0);
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("log_sum_exp", m.has_log_sum_exp(), m.log_sum_exp());
  ReadSdpa(m, r);
}

void DecodeSdpaGradient(const v1::Operation& operation, Reader& r) {
  const v1::SdpaGradient& m = operation.sdpa_gradient();
  r.In("q", m.has_q(), m.q());
  r.In("k", m.has_k(), m.k());
  r.In("v", m.has_v(), m.v());
  r.In("dy", m.has_dy(), m.dy());
  r.MaybeIn("mask", m.has_mask(), m.mask());
  r.MaybeIn("y", m.has_y(), m.y());
  r.MaybeIn("log_sum_exp", m.has_log_sum_exp(), m.log_sum_exp());
  r.Out("dq", m.has_dq(), m.dq());
  r.Out("dk", m.has_dk(), m.dk());
  r.Out("dv", m.has_dv(), m.dv());
  r.MaybeOut("dmask", m.has_dmask(), m.dmask());
  ReadSdpa(m, r);
  if (m.dropout_p() != 0) r.Bad("dropout_p", "must be 0");
}

// The batch extents of y, heads last; nothing where the operands do not fit. `mask` is its place.
std::optional<Extents> BatchOf(Check& check, int mask) {
  const auto& a = check.attributes<SdpaAttributes>();
  check.Floating(0);
  for (int place : {0, 1, 2}) {
    check.Dtype(place, check.dtype(0));
    check.Rank(place, 2, kMaxRank);
  }
  if (!check.ok()) return std::nullopt;
  const Extents &q = check.shape(0), &k = check.shape(1), &v = check.shape(2);
  if (q.back() != k.back()) check.Bad(1, Reason::kShapeInvalid, "has another head width than q");
  if (k[k.size() - 2] != v[v.size() - 2]) {
    check.Bad(2, Reason::kShapeInvalid, "has another length than k");
  }
  auto batch = [](const Extents& shape) { return Extents(shape.begin(), shape.end() - 2); };
  Extents bq = batch(q), bk = batch(k), bv = batch(v);
  if (a.enable_gqa && !bq.empty() && !bk.empty() && !bv.empty()) {
    for (auto [place, heads] : {std::pair(1, &bk.back()), std::pair(2, &bv.back())}) {
      if (*heads == 0 || bq.back() % *heads != 0) {
        check.Bad(place, Reason::kShapeInvalid, "has heads that do not divide those of q");
      }
      *heads = 1;
    }
  }
  const auto qk = BroadcastShapes(bq, bk);
  const auto all = qk ? BroadcastShapes(*qk, bv) : std::nullopt;
  if (!all) {
    check.Bad(1, Reason::kShapeInvalid, "and v have batches or heads that do not fit q");
    return std::nullopt;
  }
  if (check.has(mask)) {
    const DType type = check.dtype(mask), own = check.dtype(0);
    if (type != DType::kBool && type != own && !(SizeOf(own) == 2 && type == DType::kF32)) {
      check.Bad(mask, Reason::kDtypeInvalid,
                absl::StrCat("is ", Name(type), "; allowed: bool, ", Name(own)));
    }
    Extents scores = *all;
    scores.push_back(q[q.size() - 2]);
    scores.push_back(k[k.size() - 2]);
    const auto together = BroadcastShapes(check.shape(mask), scores);
    if (!together || *together != scores) {
      check.Bad(mask, Reason::kShapeInvalid, "does not broadcast to the scores");
    }
  }
  return check.ok() ? all : std::nullopt;
}

void InferSdpa(Check& check) {
  const auto batch = BatchOf(check, 3);
  if (!batch) return;
  Extents rows = *batch;
  rows.push_back(check.shape(0)[check.type(0).rank() - 2]);
  Extents y = rows;
  y.push_back(check.shape(2).back());
  check.Dtype(4, DType::kU64);
  check.Shape(4, {2});
  check.Output(5, check.dtype(0), y);
  check.Output(6, SizeOf(check.dtype(0)) == 2 ? DType::kF32 : check.dtype(0), rows);
}

void InferSdpaGradient(Check& check) {
  const auto batch = BatchOf(check, 4);
  if (!batch) return;
  Extents rows = *batch;
  rows.push_back(check.shape(0)[check.type(0).rank() - 2]);
  Extents y = rows;
  y.push_back(check.shape(2).back());
  for (int place : {3, 5}) {
    check.Dtype(place, check.dtype(0));
    check.Shape(place, y);
  }
  check.Shape(6, rows);
  for (int i : {0, 1, 2}) check.Output(7 + i, check.dtype(i), check.shape(i));
  if (check.has(10) && (!check.has(4) || check.dtype(4) == DType::kBool)) {
    check.Bad(10, Reason::kDtypeInvalid, "belongs to a mask of floats");
    return;
  }
  if (check.has(10)) check.Output(10, check.dtype(4), check.shape(4));
}

constexpr Family kFamilies[] = {
    {OpKind::kSdpa, "sdpa", DecodeSdpa, InferSdpa},
    {OpKind::kSdpaGradient, "sdpa_gradient", DecodeSdpaGradient, InferSdpaGradient},
};

}  // namespace

absl::Span<const Family> AttentionFamilies() { return kFamilies; }

}  // namespace backendd
