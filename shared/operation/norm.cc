// softmax, layer_norm, batch_norm, reduction, cross_entropy, embedding: values over a dimension.
#include <algorithm>

#include "shared/operation/family.h"

namespace backendd {
namespace {

void DecodeSoftmax(const v1::Operation& operation, Reader& r) {
  const v1::Softmax& m = operation.softmax();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = SoftmaxAttributes{r.Dim("dim", m.dim(), r.type(0).rank()), m.log()};
}

void DecodeSoftmaxGradient(const v1::Operation& operation, Reader& r) {
  const v1::SoftmaxGradient& m = operation.softmax_gradient();
  r.In("y", m.has_y(), m.y());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dx", m.has_dx(), m.dx());
  r.out().spec.attributes = SoftmaxAttributes{r.Dim("dim", m.dim(), r.type(0).rank()), m.log()};
}

void InferMap(Check& check) {
  check.Floating(0);
  check.Output(1, check.dtype(0), check.shape(0));
}

void InferMapGradient(Check& check) {
  check.Floating(0);
  check.Dtype(1, check.dtype(0));
  check.Shape(1, check.shape(0));
  check.Output(2, check.dtype(0), check.shape(0));
}

void DecodeLayerNorm(const v1::Operation& operation, Reader& r) {
  const v1::LayerNorm& m = operation.layer_norm();
  r.In("x", m.has_x(), m.x());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("mean", m.has_mean(), m.mean());
  r.MaybeOut("rstd", m.has_rstd(), m.rstd());
  LayerNormAttributes a;
  a.normalized_shape.assign(m.normalized_shape().begin(), m.normalized_shape().end());
  if (m.has_eps()) a.eps = m.eps();
  if (a.normalized_shape.empty()) r.Bad("normalized_shape", "is empty");
  r.out().spec.attributes = a;
}

void DecodeLayerNormGradient(const v1::Operation& operation, Reader& r) {
  const v1::LayerNormGradient& m = operation.layer_norm_gradient();
  r.In("x", m.has_x(), m.x());
  r.In("mean", m.has_mean(), m.mean());
  r.In("rstd", m.has_rstd(), m.rstd());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dx", m.has_dx(), m.dx());
  r.MaybeOut("dweight", m.has_dweight(), m.dweight());
  r.MaybeOut("dbias", m.has_dbias(), m.dbias());
  LayerNormAttributes a;
  a.normalized_shape.assign(m.normalized_shape().begin(), m.normalized_shape().end());
  if (a.normalized_shape.empty()) r.Bad("normalized_shape", "is empty");
  r.out().spec.attributes = a;
}

// The shape of mean and rstd: x's with extents of 1 where it is normalised. Those must end x's
// shape.
std::optional<Extents> RowsOf(Check& check, int x) {
  const Extents& tail = check.attributes<LayerNormAttributes>().normalized_shape;
  const Extents& shape = check.shape(x);
  if (tail.size() > shape.size() || tail.empty() ||
      !std::equal(tail.begin(), tail.end(), shape.end() - tail.size())) {
    if (!tail.empty()) check.Bad(x, Reason::kShapeInvalid, "does not end in normalized_shape");
    return std::nullopt;
  }
  Extents rows = shape;
  std::fill(rows.end() - tail.size(), rows.end(), 1);
  return rows;
}

void InferLayerNorm(Check& check) {
  check.Floating(0);
  const auto rows = RowsOf(check, 0);
  if (!rows) return;
  for (int place : {1, 2}) {
    check.Dtype(place, check.dtype(0));
    check.Shape(place, check.attributes<LayerNormAttributes>().normalized_shape);
  }
  check.Output(3, check.dtype(0), check.shape(0));
  check.Output(4, check.dtype(0), *rows);
  check.Output(5, check.dtype(0), *rows);
}

void InferLayerNormGradient(Check& check) {
  const Extents& tail = check.attributes<LayerNormAttributes>().normalized_shape;
  check.Floating(0);
  const auto rows = RowsOf(check, 0);
  if (!rows) return;
  for (int place : {1, 2, 3, 4}) check.Dtype(place, check.dtype(0));
  check.Shape(1, *rows);
  check.Shape(2, *rows);
  check.Shape(3, tail);
  check.Shape(4, check.shape(0));
  check.Output(5, check.dtype(0), check.shape(0));
  check.Output(6, check.dtype(0), tail);
  check.Output(7, check.dtype(0), tail);
}

void DecodeBatchNorm(const v1::Operation& operation, Reader& r) {
  const v1::BatchNorm& m = operation.batch_norm();
  const Use running = m.training() ? Use::kInOut : Use::kIn;
  r.In("x", m.has_x(), m.x());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.MaybeIn("bias", m.has_bias(), m.bias());
  r.Add("running_mean", m.has_running_mean(), m.running_mean(), running, !m.training());
  r.Add("running_var", m.has_running_var(), m.running_var(), running, !m.training());
  r.Out("y", m.has_y(), m.y());
  r.MaybeOut("mean", m.has_mean(), m.mean());
  r.MaybeOut("rstd", m.has_rstd(), m.rstd());
  BatchNormAttributes a;
  a.training = m.training();
  if (m.has_momentum()) a.momentum = m.momentum();
  if (m.has_eps()) a.eps = m.eps();
  r.out().spec.attributes = a;
}

void DecodeBatchNormGradient(const v1::Operation& operation, Reader& r) {
  const v1::BatchNormGradient& m = operation.batch_norm_gradient();
  r.In("x", m.has_x(), m.x());
  r.In("mean", m.has_mean(), m.mean());
  r.In("rstd", m.has_rstd(), m.rstd());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dx", m.has_dx(), m.dx());
  r.MaybeOut("dweight", m.has_dweight(), m.dweight());
  r.MaybeOut("dbias", m.has_dbias(), m.dbias());
  BatchNormAttributes a;
  a.training = m.training();
  r.out().spec.attributes = a;
}

void InferBatchNorm(Check& check) {
  check.Floating(0);
  check.Rank(0, 2, kMaxRank);
  if (!check.ok()) return;
  const Extents channels = {check.shape(0)[1]};
  for (int place : {1, 2, 3, 4}) {
    check.Dtype(place, check.dtype(0));
    check.Shape(place, channels);
  }
  if (check.attributes<BatchNormAttributes>().training && check.type(0).elements() == channels[0] &&
      channels[0] > 0) {
    check.BadAttribute("training", "needs 2 values per channel");
  }
  check.Output(5, check.dtype(0), check.shape(0));
  check.Output(6, check.dtype(0), channels);
  check.Output(7, check.dtype(0), channels);
}

void InferBatchNormGradient(Check& check) {
  check.Floating(0);
  check.Rank(0, 2, kMaxRank);
  if (!check.ok()) return;
  const Extents channels = {check.shape(0)[1]};
  for (int place : {1, 2, 3, 4}) check.Dtype(place, check.dtype(0));
  for (int place : {1, 2, 3}) check.Shape(place, channels);
  check.Shape(4, check.shape(0));
  check.Output(5, check.dtype(0), check.shape(0));
  check.Output(6, check.dtype(0), channels);
  check.Output(7, check.dtype(0), channels);
}

void DecodeReduction(const v1::Operation& operation, Reader& r) {
  const v1::Reduction& m = operation.reduction();
  r.In("x", m.has_x(), m.x());
  r.Out("y", m.has_y(), m.y());
  const bool indices = m.kind() == v1::REDUCTION_KIND_MAX_WITH_INDICES;
  r.Add("indices", m.has_indices(), m.indices(), Use::kOut, indices);
  if (!indices && m.has_indices()) r.Bad("indices", "belong to max_with_indices");
  ReductionAttributes a;
  a.kind = r.Enum("kind", m.kind(), v1::REDUCTION_KIND_SUM, v1::ReductionKind_IsValid);
  a.keepdim = m.keepdim();
  const int rank = r.type(0).rank();
  std::vector<bool> reduced(std::max(rank, 1), m.dim().empty());
  for (int64_t dim : m.dim()) {
    const int64_t at = r.Dim("dim", dim, rank);
    if (reduced[at]) r.Bad("dim", "names a dimension twice");
    reduced[at] = true;
  }
  for (int i = 0; i < rank; ++i) {
    if (reduced[i]) a.dim.push_back(i);
  }
  r.out().spec.attributes = a;
}

void InferReduction(Check& check) {
  const auto& a = check.attributes<ReductionAttributes>();
  const DType dtype = check.dtype(0);
  const bool whole = IsInteger(dtype) || dtype == DType::kBool;
  const bool sum = a.kind == v1::REDUCTION_KIND_SUM;
  if (!(whole && sum)) check.Floating(0);
  Extents y;
  int64_t reduced = 1;
  for (int i = 0; i < check.type(0).rank(); ++i) {
    const bool gone = std::find(a.dim.begin(), a.dim.end(), i) != a.dim.end();
    if (gone) reduced *= check.shape(0)[i] == 0 ? 0 : 1;
    if (!gone || a.keepdim) y.push_back(gone ? 1 : check.shape(0)[i]);
  }
  const bool adds = sum || a.kind == v1::REDUCTION_KIND_MEAN || a.kind == v1::REDUCTION_KIND_NORM2;
  const bool places = a.kind == v1::REDUCTION_KIND_ARGMAX || a.kind == v1::REDUCTION_KIND_ARGMIN;
  const bool empty = std::find(y.begin(), y.end(), 0) != y.end();
  if (reduced == 0 && !adds && !empty) {
    check.BadAttribute("dim", "leaves nothing to choose from");
  }
  if ((places || a.kind == v1::REDUCTION_KIND_MAX_WITH_INDICES) && a.dim.size() > 1 &&
      static_cast<int>(a.dim.size()) != check.type(0).rank()) {
    check.BadAttribute("dim", "must be one dimension, or all, where places are asked for");
  }
  check.Output(1, places || whole ? DType::kS64 : dtype, y);
  check.Output(2, DType::kS64, y);
}

template <class M>
CrossEntropyAttributes ReadLoss(const M& m, Reader& r) {
  CrossEntropyAttributes a;
  if (m.has_ignore_index()) a.ignore_index = m.ignore_index();
  a.reduction =
      r.Enum("reduction", m.reduction(), v1::LOSS_REDUCTION_MEAN, v1::LossReduction_IsValid);
  a.label_smoothing = m.label_smoothing();
  if (!(a.label_smoothing >= 0 && a.label_smoothing <= 1)) {
    r.Bad("label_smoothing", "is not between 0 and 1");
  }
  return a;
}

void DecodeCrossEntropy(const v1::Operation& operation, Reader& r) {
  const v1::CrossEntropy& m = operation.cross_entropy();
  r.In("x", m.has_x(), m.x());
  r.In("target", m.has_target(), m.target());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.Out("y", m.has_y(), m.y());
  r.out().spec.attributes = ReadLoss(m, r);
}

void DecodeCrossEntropyGradient(const v1::Operation& operation, Reader& r) {
  const v1::CrossEntropyGradient& m = operation.cross_entropy_gradient();
  r.In("x", m.has_x(), m.x());
  r.In("target", m.has_target(), m.target());
  r.MaybeIn("weight", m.has_weight(), m.weight());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dx", m.has_dx(), m.dx());
  r.out().spec.attributes = ReadLoss(m, r);
}

// The shape of the loss.
std::optional<Extents> LossShape(Check& check) {
  const auto& a = check.attributes<CrossEntropyAttributes>();
  check.Floating(0);
  check.Rank(0, 1, kMaxRank);
  if (!check.ok()) return std::nullopt;
  const Extents& x = check.shape(0);
  const size_t class_dim = x.size() == 1 ? 0 : 1;
  Extents items = x;
  items.erase(items.begin() + class_dim);
  if (check.dtype(1) == check.dtype(0) && check.shape(1) == x) {
    // Probabilities.
  } else if (check.dtype(1) == DType::kS64 || check.dtype(1) == DType::kU8) {
    check.Shape(1, items);
  } else {
    check.Bad(1, Reason::kDtypeInvalid,
              "must be s64 or u8 class indices, or probabilities of x's type and shape");
  }
  check.Dtype(2, check.dtype(0));
  check.Shape(2, {x[class_dim]});
  return a.reduction == v1::LOSS_REDUCTION_NONE ? items : Extents();
}

void InferCrossEntropy(Check& check) {
  if (const auto y = LossShape(check)) check.Output(3, check.dtype(0), *y);
}

void InferCrossEntropyGradient(Check& check) {
  const auto y = LossShape(check);
  if (!y) return;
  check.Dtype(3, check.dtype(0));
  check.Shape(3, *y);
  check.Output(4, check.dtype(0), check.shape(0));
}

void DecodeEmbedding(const v1::Operation& operation, Reader& r) {
  const v1::Embedding& m = operation.embedding();
  r.In("index", m.has_index(), m.index());
  r.In("weight", m.has_weight(), m.weight());
  r.Out("y", m.has_y(), m.y());
  EmbeddingAttributes a;
  if (m.has_padding_idx()) a.padding_idx = m.padding_idx();
  r.out().spec.attributes = a;
}

void DecodeEmbeddingGradient(const v1::Operation& operation, Reader& r) {
  const v1::EmbeddingGradient& m = operation.embedding_gradient();
  r.In("index", m.has_index(), m.index());
  r.In("dy", m.has_dy(), m.dy());
  r.Out("dweight", m.has_dweight(), m.dweight());
  EmbeddingAttributes a;
  if (m.has_padding_idx()) a.padding_idx = m.padding_idx();
  a.scale_grad_by_freq = m.scale_grad_by_freq();
  r.out().spec.attributes = a;
}

// -rows .. rows - 1; negative counts from the end.
void PaddingIndex(Check& check, int weight) {
  const auto& a = check.attributes<EmbeddingAttributes>();
  const int64_t rows = check.shape(weight)[0];
  if (a.padding_idx && (*a.padding_idx < -rows || *a.padding_idx >= rows)) {
    check.BadAttribute("padding_idx", absl::StrCat("is ", *a.padding_idx, " of ", rows, " rows"));
  }
}

void IndexType(Check& check) {
  if (check.dtype(0) != DType::kS32) check.Dtype(0, DType::kS64);
}

void InferEmbedding(Check& check) {
  IndexType(check);
  check.Floating(1);
  check.Rank(1, 2, 2);
  if (!check.ok()) return;
  PaddingIndex(check, 1);
  Extents y = check.shape(0);
  y.push_back(check.shape(1)[1]);
  if (static_cast<int>(y.size()) > kMaxRank) {
    check.Bad(0, Reason::kShapeInvalid, absl::StrCat("has rank ", y.size() - 1, "; at most 7"));
    return;
  }
  check.Output(2, check.dtype(1), y);
}

void InferEmbeddingGradient(Check& check) {
  IndexType(check);
  check.Floating(1);
  if (check.dtype(2) == DType::kUnspecified) {
    check.Bad(2, Reason::kShapeInvalid, "needs a shape: dy does not tell it");
  }
  check.Rank(2, 2, 2);
  if (!check.ok()) return;
  PaddingIndex(check, 2);
  check.Dtype(2, check.dtype(1));
  Extents dy = check.shape(0);
  dy.push_back(check.shape(2)[1]);
  check.Shape(1, dy);
}

constexpr Family kFamilies[] = {
    {OpKind::kSoftmax, "softmax", DecodeSoftmax, InferMap},
    {OpKind::kSoftmaxGradient, "softmax_gradient", DecodeSoftmaxGradient, InferMapGradient},
    {OpKind::kLayerNorm, "layer_norm", DecodeLayerNorm, InferLayerNorm},
    {OpKind::kLayerNormGradient, "layer_norm_gradient", DecodeLayerNormGradient,
     InferLayerNormGradient},
    {OpKind::kBatchNorm, "batch_norm", DecodeBatchNorm, InferBatchNorm},
    {OpKind::kBatchNormGradient, "batch_norm_gradient", DecodeBatchNormGradient,
     InferBatchNormGradient},
    {OpKind::kReduction, "reduction", DecodeReduction, InferReduction},
    {OpKind::kCrossEntropy, "cross_entropy", DecodeCrossEntropy, InferCrossEntropy},
    {OpKind::kCrossEntropyGradient, "cross_entropy_gradient", DecodeCrossEntropyGradient,
     InferCrossEntropyGradient},
    {OpKind::kEmbedding, "embedding", DecodeEmbedding, InferEmbedding},
    {OpKind::kEmbeddingGradient, "embedding_gradient", DecodeEmbeddingGradient,
     InferEmbeddingGradient},
};

}  // namespace

absl::Span<const Family> NormFamilies() { return kFamilies; }

}  // namespace backendd
