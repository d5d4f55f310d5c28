// gemm against sums in double, over shapes, strides, batches and the awkward cases.
#include <cmath>
#include <limits>

#include "tests/contract/harness.h"

namespace backendd::worker {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  Extents batch_a, batch_b;
  int64_t m, n, k;
  bool ta = false, tb = false;
};

Extents Join(Extents batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// y of the case; one batch dimension at most, of 1 or of the same extent.
Value Expected(const Case& c, const Value& a, const Value& b, double alpha, Extents shape) {
  Value y = MakeValue(a.dtype, shape);
  const int64_t items = y.size() / std::max<int64_t>(1, c.m * c.n);
  const int64_t items_a = a.size() / std::max<int64_t>(1, c.m * c.k);
  const int64_t items_b = b.size() / std::max<int64_t>(1, c.k * c.n);
  for (int64_t item = 0; item < items; ++item) {
    const int64_t ia = items_a == items ? item : 0, ib = items_b == items ? item : 0;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        std::complex<double> sum = 0;
        for (int64_t l = 0; l < c.k; ++l) {
          sum += a.data[ia * c.m * c.k + (c.ta ? l * c.m + i : i * c.k + l)] *
                 b.data[ib * c.k * c.n + (c.tb ? j * c.k + l : l * c.n + j)];
        }
        y.data[(item * c.m + i) * c.n + j] = alpha * sum;
      }
    }
  }
  return y;
}

class Gemm : public DeviceContract {};

TEST_P(Gemm, EveryShapeTransposeAndBatchGivesTheSums) {
  const Case cases[] = {{{}, {}, 1, 1, 1},
                        {{}, {}, 7, 5, 3},
                        {{}, {}, 64, 33, 17, true},
                        {{}, {}, 5, 64, 128},
                        {{}, {}, 3, 4, 5, true, true},
                        {{4}, {4}, 3, 2, 5},
                        {{4}, {}, 3, 2, 5},
                        {{}, {4}, 3, 2, 5},
                        {{1}, {3}, 2, 2, 2},
                        {{3}, {3}, 4, 4, 4, false, true},
                        {{}, {}, 2, 3, 0},
                        {{}, {}, 0, 3, 2},
                        {{0}, {1}, 2, 2, 2}};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const Case& c : cases) {
      const Value a =
          RandomValue(dtype, c.ta ? Join(c.batch_a, c.k, c.m) : Join(c.batch_a, c.m, c.k), 1);
      const Value b =
          RandomValue(dtype, c.tb ? Join(c.batch_b, c.n, c.k) : Join(c.batch_b, c.k, c.n), 2);
      v1::Operation op;
      op.mutable_gemm()->set_trans_a(c.ta ? v1::TRANSPOSE_T : v1::TRANSPOSE_N);
      op.mutable_gemm()->set_trans_b(c.tb ? v1::TRANSPOSE_T : v1::TRANSPOSE_N);
      op.mutable_gemm()->add_alpha(0.5);
      const Result result = Run(op, {{"a", a}, {"b", b}}, {{"y", Value()}});
      const Extents batch = BroadcastShapes(c.batch_a, c.batch_b).value();
      EXPECT_TRUE(Near(result["y"], Expected(c, a, b, 0.5, Join(batch, c.m, c.n)), 4.0 * c.k + 1))
          << c.m << " " << c.n << " " << c.k << " " << Name(dtype);
    }
  }
}

TEST_P(Gemm, StridedOperandsGiveWhatDenseOnesGive) {
  const Case c{{}, {}, 5, 4, 3};
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Value a = RandomValue(dtype, {5, 3}, 3), b = RandomValue(dtype, {3, 4}, 4);
    const Value expected = Expected(c, a, b, 1, {5, 4});
    v1::Operation op;
    op.mutable_gemm();
    const Value holes_a = WithStrides(a, {17, 4}), columns_b = WithStrides(b, {1, 9});
    for (const Extents& strides : {Extents{4, 1}, Extents{11, 1}, Extents{1, 8}, Extents{40, 3}}) {
      Value y = MakeValue(dtype, {5, 4});
      y.strides = strides;
      const Result result = Run(op, {{"a", holes_a}, {"b", columns_b}}, {{"y", y}});
      EXPECT_TRUE(Near(result["y"], expected, 12)) << strides[0] << " " << strides[1];
    }
  }
}

TEST_P(Gemm, CIsNotReadWhereBetaIsZeroAndAAndBNotWhereAlphaIs) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Value nan = MakeValue(dtype, {2, 2}, {kNaN, kNaN, kNaN, kNaN});
    const Value one = MakeValue(dtype, {2, 2}, {1, 0, 0, 1});
    v1::Operation op;
    op.mutable_gemm();
    EXPECT_TRUE(Near(Run(op, {{"a", one}, {"b", one}, {"c", nan}}, {{"y", Value()}})["y"], one, 1));
    op.mutable_gemm()->add_alpha(0);
    op.mutable_gemm()->add_beta(2);
    EXPECT_TRUE(Near(Run(op, {{"a", nan}, {"b", nan}, {"c", one}}, {{"y", Value()}})["y"],
                     MakeValue(dtype, {2, 2}, {2, 0, 0, 2}), 1));
  }
}

TEST_P(Gemm, ReluOfNaNIsNaNAndBiasComesFirst) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Value a = MakeValue(dtype, {1, 1}, {1});
    const Value b = MakeValue(dtype, {1, 3}, {kNaN, 2, -3});
    v1::Operation op;
    op.mutable_gemm()->set_epilogue(v1::EPILOGUE_RELU);
    const Value bias = MakeValue(dtype, {3}, {0, -3, 4});
    EXPECT_TRUE(Near(Run(op, {{"a", a}, {"b", b}, {"bias", bias}}, {{"y", Value()}})["y"],
                     MakeValue(dtype, {1, 3}, {kNaN, 0, 1}), 1));
  }
}

TEST_P(Gemm, Bf16InsideF32IsSeenInTheNumbersAndInTheChoice) {
  const Value a = MakeValue(DType::kF32, {64, 64}, std::vector<double>(64 * 64, 1 + 1.0 / 512));
  const Value b = MakeValue(DType::kF32, {64, 64}, std::vector<double>(64 * 64, 1));
  v1::Operation op;
  op.mutable_gemm();
  const Result strict = Run(op, {{"a", a}, {"b", b}}, {{"y", Value()}});
  EXPECT_EQ(strict["y"].at(0), 64.125);
  EXPECT_TRUE(strict.choice.unmet.empty());
  TestFlags flags;
  flags.Set("mkldnn.matmul.fp32_precision", std::string("bf16"));
  const Result loose = Run(op, {{"a", a}, {"b", b}}, {{"y", Value()}}, flags);
  if (loose.choice.unmet.empty()) {
    EXPECT_EQ(loose["y"].at(0), 64.0);
  } else {
    EXPECT_EQ(loose.choice.unmet[0].reason, "HARDWARE");
    EXPECT_EQ(loose["y"].at(0), 64.125);
  }
  flags.Set("mkldnn.matmul.fp32_precision", std::string("tf32"));
  const Result tf32 = Run(op, {{"a", a}, {"b", b}}, {{"y", Value()}}, flags);
  ASSERT_EQ(tf32.choice.unmet.size(), 1u);
  EXPECT_EQ(tf32.choice.unmet[0].reason, "LIBRARY_VERSION");
  EXPECT_EQ(tf32["y"].at(0), 64.125);
}

TEST_P(Gemm, TheLibraryFollowsTheFlagsAndSaysWhatItDidNotHonour) {
  const Value f32 = RandomValue(DType::kF32, {3, 3}, 1), f64 = RandomValue(DType::kF64, {3, 3}, 1);
  v1::Operation op;
  op.mutable_gemm();
  const Operands single = {{"a", f32}, {"b", f32}}, wide = {{"a", f64}, {"b", f64}};
  EXPECT_EQ(Run(op, single, {{"y", Value()}}).choice.library, "onednn");
  EXPECT_EQ(Run(op, wide, {{"y", Value()}}).choice.library, "openblas");
  TestFlags off;
  off.Set("mkldnn.enabled", false);
  EXPECT_EQ(Run(op, single, {{"y", Value()}}, off).choice.library, "openblas");
  TestFlags mkl;
  mkl.Set("cpu.preferred_blas_library", std::string("mkl"));
  const Result result = Run(op, single, {{"y", Value()}}, mkl);
  ASSERT_EQ(result.choice.unmet.size(), 1u);
  EXPECT_EQ(result.choice.unmet[0].reason, "NOT_BUILT");
  TestFlags onednn;
  onednn.Set("cpu.preferred_blas_library", std::string("onednn"));
  ASSERT_EQ(Run(op, wide, {{"y", Value()}}, onednn).choice.unmet.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, Gemm, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
