// 2:4 sparse matrices: prune, check, compress, and the product by expanding. Values are bits here:
// the bits of |x| order as numbers do, NaN above all, so one kernel serves all floats of a width.
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/part.h"

namespace backendd::worker {
namespace {

template <class Word>
Word Magnitude(Word bits) {
  return bits & static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
}

// f(uint32_t{}) by the width of the type.
template <class F>
absl::Status ByWidth(DType dtype, F&& f) {
  switch (SizeOf(dtype)) {
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// A matrix of an operand by its strides.
struct Rows {
  int place;
  int64_t row, column;
  template <class T>
  T& at(const Call& call, int64_t i, int64_t j) const {
    return call.At<T>(place)[i * row + j * column];
  }
};
Rows RowsOf(Builder& b, int place) {
  if (!b.has(place)) return {place, 0, 0};
  return {place, b.type(place).strides[0], b.type(place).strides[1]};
}

template <class Word>
absl::Status BuildPrune(Builder& b) {
  const int64_t m = b.type(0).shape[0], groups = b.type(0).shape[1] / 4;
  const Rows a = RowsOf(b, 0), y = RowsOf(b, 1), mask = RowsOf(b, 2);
  const bool masked = b.has(2);
  b.plan.kernel = [=](const Call& call) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t g = 0; g < groups; ++g) {
        Word value[4];
        for (int j = 0; j < 4; ++j) value[j] = a.at<Word>(call, i, 4 * g + j);
        for (int j = 0; j < 4; ++j) {
          int larger = 0;  // ties stay with the lower index
          for (int k = 0; k < 4; ++k) {
            larger += Magnitude(value[k]) > Magnitude(value[j]) ||
                      (k < j && Magnitude(value[k]) == Magnitude(value[j]));
          }
          y.at<Word>(call, i, 4 * g + j) = larger < 2 ? value[j] : Word{0};
          if (masked) mask.at<uint8_t>(call, i, 4 * g + j) = larger < 2;
        }
      }
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class Word>
absl::Status BuildCheck(Builder& b) {
  const int64_t m = b.type(0).shape[0], groups = b.type(0).shape[1] / 4;
  const Rows a = RowsOf(b, 0);
  b.plan.kernel = [=](const Call& call) {
    int64_t bad = -1;
    for (int64_t i = 0; i < m && bad < 0; ++i) {
      for (int64_t g = 0; g < groups && bad < 0; ++g) {
        int values = 0;
        for (int j = 0; j < 4; ++j) values += Magnitude(a.at<Word>(call, i, 4 * g + j)) != 0;
        if (values > 2) bad = i * groups + g;
      }
    }
    *call.At<uint8_t>(1) = bad < 0;
    *call.At<int64_t>(2) = bad;
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

// With fewer than two values the free places are those of torch's table.
template <class Word>
absl::Status BuildCompress(Builder& b) {
  const int64_t m = b.type(0).shape[0], groups = b.type(0).shape[1] / 4;
  const Rows a = RowsOf(b, 0), values = RowsOf(b, 1), indices = RowsOf(b, 2);
  b.plan.kernel = [=](const Call& call) {
    constexpr uint8_t kAlone[5][2] = {{0, 2}, {1, 2}, {2, 3}, {2, 3}, {2, 3}};  // the last: none
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t g = 0; g < groups; ++g) {
        uint8_t found[4];
        int count = 0;
        for (uint8_t j = 0; j < 4; ++j) {
          if (Magnitude(a.at<Word>(call, i, 4 * g + j)) != 0) found[count++] = j;
        }
        if (count > 2) {
          *call.fault = {Reason::kArgumentInvalid, i, g,
                         absl::StrCat("group ", g, " of row ", i, " has ", count, " values")};
          return absl::OkStatus();
        }
        const uint8_t* const at = count == 2 ? found : kAlone[count == 1 ? found[0] : 4];
        for (int j = 0; j < 2; ++j) {
          values.at<Word>(call, i, 2 * g + j) = a.at<Word>(call, i, 4 * g + at[j]);
          indices.at<uint8_t>(call, i, 2 * g + j) = at[j];
        }
      }
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class Word>
absl::Status BuildMatmul(Builder& b) {
  const int64_t m = b.type(0).shape[0], groups = b.type(0).shape[1] / 2;
  const Rows values = RowsOf(b, 0), indices = RowsOf(b, 1);
  const TensorType expanded = RowMajor(b.type(0).dtype, {m, 4 * groups});
  const uint64_t at = b.Reserve(expanded.elements() * sizeof(Word));
  OperationSpec gemm = GemmSpec(expanded, b.type(2), b.type(4));
  if (b.has(3)) {
    gemm.operands[3].present = true;
    gemm.operands[3].type = b.type(3);
  }
  ASSIGN_OR_RETURN(Part product, Part::Build(b, gemm));
  b.plan.choice.algorithm = "expand, " + product.choice().algorithm;
  b.plan.choice.copied_bytes += expanded.elements() * sizeof(Word);
  b.plan.cost_us = product.cost_us();
  b.plan.kernel = [=, product = std::move(product)](const Call& call) {
    Word* const a = call.Work<Word>(at);
    std::fill(a, a + m * 4 * groups, Word{0});
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < 2 * groups; ++j) {
        const int index = indices.at<uint8_t>(call, i, j);
        if (index > 3) {
          *call.fault = {
              Reason::kIndexInvalid, i, j,
              absl::StrCat("index ", j, " of row ", i, " is ", index, "; allowed: 0 to 3")};
          return absl::OkStatus();
        }
        const Word value = values.at<Word>(call, i, j);
        // A free place may name the index of a value: it must not take it away.
        Word& to = a[(i * groups + j / 2) * 4 + index];
        if (Magnitude(value) != 0) to = value;
      }
    }
    const Address operands[] = {a, call.operands[2], nullptr, call.operands[3], call.operands[4]};
    return product.Run(call, operands);
  };
  return absl::OkStatus();
}

absl::Status Own(Builder& b, absl::Status (*build)(Builder&)) {
  b.plan.choice.library = "own";
  b.Cost(0, SpanBytes(b.type(0)).value_or(0));
  return build(b);
}

constexpr KernelRow kRows[] = {
    {OpKind::kSparse24Prune,
     [](Builder& b) {
       return ByWidth(b.type(0).dtype, [&](auto w) { return Own(b, BuildPrune<decltype(w)>); });
     }},
    {OpKind::kSparse24Check,
     [](Builder& b) {
       return ByWidth(b.type(0).dtype, [&](auto w) { return Own(b, BuildCheck<decltype(w)>); });
     }},
    {OpKind::kSparse24Compress,
     [](Builder& b) {
       return ByWidth(b.type(0).dtype, [&](auto w) { return Own(b, BuildCompress<decltype(w)>); });
     }},
    {OpKind::kSparse24Matmul,
     [](Builder& b) {
       return ByWidth(b.type(0).dtype, [&](auto w) { return BuildMatmul<decltype(w)>(b); });
     }},
};

}  // namespace

absl::Span<const KernelRow> SparseKernels() { return kRows; }

}  // namespace backendd::worker
