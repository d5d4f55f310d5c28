#include "server/worker/device/cpu/gemm_integer.h"

#include "server/worker/device/cpu/dot.h"
#include "server/worker/device/cpu/loop.h"

namespace backendd::worker {
namespace {

enum { kA, kB, kC, kBias, kY };

// The type as a batch of rows to be multiplied: [..., rows, k].
TensorType ByRows(TensorType type, bool swap) {
  if (swap) {
    const size_t last = type.shape.size() - 1;
    std::swap(type.shape[last], type.shape[last - 1]);
    std::swap(type.strides[last], type.strides[last - 1]);
  }
  return type;
}

TensorType BatchOf(const TensorType& type) {
  TensorType batch = type;
  batch.shape.resize(type.shape.size() - 2);
  batch.strides.resize(type.shape.size() - 2);
  return batch;
}

// Modulo 2^32, as integers wrap.
int32_t Wrap(uint64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

}  // namespace

absl::Status BuildIntegerGemm(Builder& b) {
  const auto& g = b.attributes<GemmAttributes>();
  const TensorType a = ByRows(b.type(kA), g.trans_a != v1::TRANSPOSE_N);
  const TensorType w = ByRows(b.type(kB), g.trans_b == v1::TRANSPOSE_N);
  const TensorType& y = b.type(kY);
  const int64_t m = a.shape[a.shape.size() - 2], n = w.shape[w.shape.size() - 2];
  const int64_t k = a.shape.back();
  const TensorType a_dense = RowMajor(DType::kS16, a.shape),
                   w_dense = RowMajor(DType::kS16, w.shape);
  const uint64_t a_at = b.Reserve(a_dense.elements() * sizeof(int16_t));
  const uint64_t w_at = b.Reserve(w_dense.elements() * sizeof(int16_t));
  const auto a_nest = MakeNest<2>(a.shape, {a.strides, a_dense.strides});
  const auto w_nest = MakeNest<2>(w.shape, {w.strides, w_dense.strides});
  const Extents batch = BatchOf(y).shape;
  const bool with_c = b.has(kC) && g.beta != 0.0;
  Extents c_all(y.shape.size(), 0);
  if (with_c) c_all = BroadcastStrides(b.type(kC), y.shape);
  const Extents c_batch(c_all.begin(), c_all.end() - 2);
  const int64_t c_row = c_all[c_all.size() - 2], c_column = c_all.back();
  const Extents y_batch(y.strides.begin(), y.strides.end() - 2);
  const int64_t y_row = y.strides[y.strides.size() - 2], y_column = y.strides.back();
  const auto items =
      MakeNest<4>(batch, {BroadcastStrides(BatchOf(a_dense), batch),
                          BroadcastStrides(BatchOf(w_dense), batch), c_batch, y_batch});
  const int64_t bias_step = b.has(kBias) ? b.type(kBias).strides[0] : 0;
  const auto alpha = static_cast<int64_t>(g.alpha.real());
  const auto beta = static_cast<int64_t>(g.beta.real());
  const bool relu = g.epilogue == v1::EPILOGUE_RELU;
  Choice& choice = b.plan.choice;
  choice.library = "own";
  choice.algorithm = "s16 pairs";
  choice.candidates = {"own"};
  choice.threads = 1;
  choice.copied_bytes += (a_dense.elements() + w_dense.elements()) * sizeof(int16_t);
  b.Cost(2.0 * y.elements() * k, 4.0 * y.elements());
  const bool is_signed = b.type(kA).dtype == DType::kS8;
  b.plan.kernel = [=, has_bias = b.has(kBias)](const Call& call) {
    auto widen = [](auto code) { return static_cast<int16_t>(code); };
    int16_t *const as = call.Work<int16_t>(a_at), *const ws = call.Work<int16_t>(w_at);
    is_signed ? Map1(a_nest, call.At<int8_t>(kA), as, widen)
              : Map1(a_nest, call.At<uint8_t>(kA), as, widen);
    Map1(w_nest, call.At<int8_t>(kB), ws, widen);
    const int32_t* const bias = has_bias ? call.At<int32_t>(kBias) : nullptr;
    const int32_t* const c = with_c ? call.At<int32_t>(kC) : nullptr;
    auto product = [&](const int16_t* left, const int16_t* right, const int32_t* add, int32_t* to) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          uint64_t sum = uint64_t(alpha) * uint64_t(Dot(left + i * k, right + j * k, k));
          if (add != nullptr) {
            sum += uint64_t(beta) * uint64_t(int64_t{add[i * c_row + j * c_column]});
          }
          if (bias != nullptr) sum += uint64_t(int64_t{bias[j * bias_step]});
          const int32_t value = Wrap(sum);
          to[i * y_row + j * y_column] = relu && value < 0 ? 0 : value;
        }
      }
    };
    Walk(items, [&](const Nest<4>::Steps& at) {
      for (int64_t i = 0; i < items.count; ++i) {
        product(as + at[0] + i * items.inner[0], ws + at[1] + i * items.inner[1],
                c == nullptr ? nullptr : c + at[2] + i * items.inner[2],
                call.At<int32_t>(kY) + at[3] + i * items.inner[3]);
      }
    });
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

}  // namespace backendd::worker
