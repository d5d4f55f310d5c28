// grouped_gemm: a loop of gemms, or of the rows that offsets share out.
#include <cblas.h>

#include "server/worker/device/cpu/activation.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/narrow.h"
#include "server/worker/device/cpu/part.h"
#include "shared/operation/gemm.h"

namespace backendd::worker {
namespace {

absl::Status BuildList(Builder& b) {
  const GroupedPlaces places = PlacesOfGroups(b.spec);
  struct Group {
    Part gemm;
    std::array<int, 5> operands;  // -1: absent
  };
  std::vector<Group> groups;
  for (int i = 0; i < places.groups; ++i) {
    ASSIGN_OR_RETURN(Part gemm, Part::Build(b, GemmOfGroup(b.spec, places, i)));
    b.plan.cost_us += gemm.cost_us();
    groups.push_back(
        {std::move(gemm),
         {places.a(i), places.b(i), places.has_c() ? places.c(i) : -1, -1, places.y(i)}});
  }
  Choice& choice = b.plan.choice;
  if (choice.library.empty()) choice.library = "own";
  choice.algorithm = absl::StrCat("loop of ", groups.size(), " gemms");
  b.plan.kernel = [groups = std::move(groups)](const Call& call) {
    for (const Group& group : groups) {
      Address operands[5];
      for (int i = 0; i < 5; ++i) {
        operands[i] = group.operands[i] < 0 ? nullptr : call.operands[group.operands[i]];
      }
      RETURN_IF_ERROR(group.gemm.Run(call, operands));
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

void Product(bool transposed, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
             const float* b, float* y) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, m, n, k, alpha,
              a, k, b, transposed ? k : n, 0, y, n);
}
void Product(bool transposed, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
             const double* b, double* y) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, m, n, k, alpha,
              a, k, b, transposed ? k : n, 0, y, n);
}

// The rows of a group are known when it runs: a, b and y are dense and wide in the workspace.
template <class T>
absl::Status BuildRagged(Builder& b) {
  enum { kA, kB, kOffsets, kY };
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto& g = b.attributes<GroupedGemmAttributes>().gemm;
  const TensorType &a = b.type(kA), &w = b.type(kB), &y = b.type(kY);
  const int64_t rows = a.shape[0], k = a.shape[1], n = y.shape[1], groups = w.shape[0];
  const bool transposed = g.trans_b != v1::TRANSPOSE_N;
  for (int64_t extent : {rows, k, n}) {
    if (extent > INT32_MAX) {
      return Error(Reason::kSizeTooLarge,
                   absl::StrCat("an extent of ", extent, " passes the library's 32-bit interface"));
    }
  }
  auto dense = [&](const TensorType& type) {
    const uint64_t at = b.Reserve(type.elements() * sizeof(Wide));
    b.plan.choice.copied_bytes += type.elements() * sizeof(Wide);
    return std::make_pair(at, MakeNest<2>(type.shape, {type.strides, RowMajorStrides(type.shape)}));
  };
  const auto [a_at, a_nest] = dense(a);
  const auto [b_at, b_nest] = dense(w);
  const auto [y_at, y_nest_in] = dense(y);
  const auto y_nest = MakeNest<2>(y.shape, {RowMajorStrides(y.shape), y.strides});
  const int64_t offset_step = b.type(kOffsets).strides[0], y_count = y.elements();
  b.plan.choice.library = "openblas";
  b.plan.choice.library_version = b.cpu.openblas_version;
  b.plan.choice.algorithm = "loop over ragged rows";
  b.Cost(2.0 * rows * k * n, 0);
  const Wide alpha = static_cast<Wide>(g.alpha.real() * g.scale_a * g.scale_b);
  b.plan.kernel = [=, a_at = a_at, b_at = b_at, y_at = y_at, a_nest = a_nest, b_nest = b_nest,
                   epilogue = g.epilogue](const Call& call) {
    auto widen = [](T value) -> Wide {
      if constexpr (kIsNarrow<T>) {
        return value.ToFloat();
      } else {
        return value;
      }
    };
    Wide *const as = call.Work<Wide>(a_at), *const bs = call.Work<Wide>(b_at),
                *const ys = call.Work<Wide>(y_at);
    Map1(a_nest, call.At<T>(kA), as, widen);
    Map1(b_nest, call.At<T>(kB), bs, widen);
    std::fill(ys, ys + y_count, Wide(0));  // rows of no group
    int64_t from = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t to = call.At<int32_t>(kOffsets)[group * offset_step];
      if (to < from || to > rows) {
        *call.fault = {
            Reason::kIndexInvalid, group, to,
            absl::StrCat("offset ", group, " is ", to, "; allowed: ", from, " to ", rows)};
        return absl::OkStatus();
      }
      if (to > from && n > 0 && k > 0) {
        Product(transposed, to - from, n, k, alpha, as + from * k, bs + group * k * n,
                ys + from * n);
      }
      from = to;
    }
    Map1(y_nest, ys, call.At<T>(kY), [epilogue](Wide value) -> T {
      if (epilogue == v1::EPILOGUE_RELU) value = Relu(value);
      if (epilogue == v1::EPILOGUE_GELU_ERF) value = GeluErf(value);
      if (epilogue == v1::EPILOGUE_GELU_TANH) value = GeluTanh(value);
      if constexpr (kIsNarrow<T>) {
        return T::FromDouble(value);
      } else {
        return value;
      }
    });
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

absl::Status BuildGrouped(Builder& b) {
  if (!b.attributes<GroupedGemmAttributes>().ragged_rows) return BuildList(b);
  switch (b.type(0).dtype) {
    case DType::kF16:
      return BuildRagged<Half>(b);
    case DType::kBf16:
      return BuildRagged<Bfloat16>(b);
    case DType::kF32:
      return BuildRagged<float>(b);
    default:
      return BuildRagged<double>(b);
  }
}

constexpr KernelRow kRows[] = {{OpKind::kGroupedGemm, BuildGrouped}};

}  // namespace

absl::Span<const KernelRow> GroupedKernels() { return kRows; }

}  // namespace backendd::worker
