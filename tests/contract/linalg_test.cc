// Linear algebra at the seam: recorded vectors, and matrices checked by multiplying back.
#include <cmath>

#include "gmock/gmock.h"
#include "tests/contract/recorded.h"

namespace backendd::worker {
namespace {

using Number = std::complex<double>;
using ::testing::Contains;

// One item of a batch of matrices.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Number> data;
  Number& at(int64_t i, int64_t j) { return data[i * columns + j]; }
  Number at(int64_t i, int64_t j) const { return data[i * columns + j]; }
};

std::vector<Matrix> Items(const Value& value, bool vector = false) {
  const size_t rank = vector ? 1 : 2;
  const int64_t columns = vector ? 1 : value.shape.back();
  const int64_t rows = value.shape[value.shape.size() - rank];
  int64_t count = 1;
  for (size_t d = 0; d + rank < value.shape.size(); ++d) count *= value.shape[d];
  std::vector<Matrix> items;
  for (int64_t i = 0; i < count; ++i) {
    const auto from = value.data.begin() + i * rows * columns;
    items.push_back({rows, columns, {from, from + rows * columns}});
  }
  return items;
}

Matrix Times(const Matrix& a, const Matrix& b) {
  Matrix y{a.rows, b.columns, std::vector<Number>(a.rows * b.columns)};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < b.columns; ++j) {
      for (int64_t k = 0; k < a.columns; ++k) y.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return y;
}

Matrix Adjoint(const Matrix& a) {
  Matrix y{a.columns, a.rows, std::vector<Number>(a.data.size())};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) y.at(j, i) = std::conj(a.at(i, j));
  }
  return y;
}

Matrix Unit(int64_t n) {
  Matrix y{n, n, std::vector<Number>(n * n)};
  for (int64_t i = 0; i < n; ++i) y.at(i, i) = 1;
  return y;
}

Matrix Diagonal(const Matrix& s) {
  Matrix y{s.rows, s.rows, std::vector<Number>(s.rows * s.rows)};
  for (int64_t i = 0; i < s.rows; ++i) y.at(i, i) = s.data[i];
  return y;
}

// The first `count` columns.
Matrix Left(const Matrix& a, int64_t count) {
  Matrix y{a.rows, count, std::vector<Number>(a.rows * count)};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < count; ++j) y.at(i, j) = a.at(i, j);
  }
  return y;
}

double Largest(const Matrix& a) {
  double largest = 0;
  for (Number number : a.data) largest = std::max(largest, std::abs(number));
  return largest;
}

void ExpectSame(const Matrix& got, const Matrix& wanted, double eps, const std::string& what) {
  ASSERT_EQ(got.rows, wanted.rows) << what;
  ASSERT_EQ(got.columns, wanted.columns) << what;
  const double allowed = eps * 64 * std::max(1.0, Largest(wanted)) * (1 + got.columns);
  for (size_t i = 0; i < got.data.size(); ++i) {
    EXPECT_LE(std::abs(got.data[i] - wanted.data[i]), allowed) << what << " element " << i;
  }
}

Value Narrowed(Value value) {
  if (value.dtype == DType::kF64) value.dtype = DType::kF32;
  if (value.dtype == DType::kC128) value.dtype = DType::kC64;
  return value;
}

Reason ReasonOfKind(const std::string& error) {
  if (error == "shape") return Reason::kShapeInvalid;
  if (error == "dtype") return Reason::kDtypeInvalid;
  if (error == "unsupported") return Reason::kOpUnsupported;
  if (error == "singular") return Reason::kMatrixSingular;
  if (error == "not_positive_definite") return Reason::kNotPositiveDefinite;
  return Reason::kArgumentInvalid;
}

Operands Open(std::initializer_list<const char*> names) {
  Operands outputs;
  for (const char* name : names) outputs.emplace_back(name, Value());
  return outputs;
}

class Linalg : public DeviceContract {
 protected:
  // Vectors of one operation: what is refused, and what is given back as recorded; the rest is left
  // to `more`.
  template <class F>
  void Replay(const std::string& file, std::initializer_list<const char*> required, F more) {
    for (bool narrow : {false, true}) {
      for (Vector& vector : ReadVectors(BACKENDD_VECTORS, file)) {
        SCOPED_TRACE(vector.id + (narrow ? " narrowed" : ""));
        if (narrow && vector.id == "det/overflow") continue;  // its numbers are no floats
        for (auto& [name, value] : vector.inputs) {
          if (narrow) value = Narrowed(value);
        }
        for (auto& [name, value] : vector.outputs) {
          if (narrow) value = Narrowed(value);
        }
        if (!vector.error.empty()) {
          if (narrow) continue;
          Reason reason = ReasonOfKind(vector.error);
          if (vector.id == "svd/nan") reason = Reason::kNotConverged;
          EXPECT_THAT(Refused(vector.operation, vector.inputs, Open(required)), Contains(reason));
          continue;
        }
        more(vector);
      }
    }
  }
  // By name; "y.1" is item 1 of y, and what is not asked for as an output of its own.
  void Recorded(const Vector& vector, std::initializer_list<const char*> required, double factor) {
    Operands outputs = Open(required);
    for (const auto& [name, value] : vector.outputs) {
      const std::string field = name.substr(0, name.find('.'));
      bool asked = false;
      for (const auto& [have, open] : outputs) asked |= have == field;
      if (!asked) outputs.emplace_back(field, Value());
    }
    const Result result = Run(vector.operation, vector.inputs, outputs);
    for (const auto& [name, wanted] : vector.outputs) {
      const size_t dot = name.find('.');
      Value got = result[name.substr(0, dot)];
      if (dot != std::string::npos) {
        const size_t item = std::stoi(name.substr(dot + 1)), size = wanted.size();
        got.shape = wanted.shape;
        got.data = {got.data.begin() + item * size, got.data.begin() + (item + 1) * size};
      }
      double scale = 1;
      for (Number number : wanted.data) {
        if (std::isfinite(std::abs(number))) scale = std::max(scale, std::abs(number));
      }
      const auto near = Near(got, wanted, scale, factor);
      if (vector.compare == "advisory") {
        if (!near) std::cout << "advisory " << vector.id << ": " << near.message() << "\n";
      } else {
        EXPECT_TRUE(near) << name;
      }
    }
  }
};

TEST_P(Linalg, InverseSolutionFactorsAndDeterminantsAreAsRecorded) {
  Replay("inv", {"y"}, [&](const Vector& v) { Recorded(v, {"y"}, 512); });
  Replay("solve", {"x"}, [&](const Vector& v) { Recorded(v, {"x"}, 512); });
  Replay("cholesky", {"l"}, [&](const Vector& v) { Recorded(v, {"l"}, 128); });
  Replay("lu", {"lu", "pivots"}, [&](const Vector& v) { Recorded(v, {"lu", "pivots"}, 128); });
  Replay("det", {"det"}, [&](const Vector& v) { Recorded(v, {"det"}, 512); });
}

const Value& Find(const Operands& operands, const std::string& name) {
  for (const auto& [have, value] : operands) {
    if (have == name) return value;
  }
  static const Value nothing;
  return nothing;
}
bool Has(const Operands& operands, const std::string& name) {
  return Find(operands, name).dtype != DType::kUnspecified;
}

TEST_P(Linalg, QrKeepsTheInvariantsOfTheRecording) {
  Replay("qr", {"q", "r"}, [&](const Vector& v) {
    const bool r_only = v.operation.qr().mode() == v1::QR_MODE_R;
    const Result result = Run(v.operation, v.inputs, r_only ? Open({"r"}) : Open({"q", "r"}));
    const double eps = Epsilon(v.inputs[0].second.dtype);
    const auto as = Items(v.inputs[0].second), rs = Items(result["r"]);
    const auto wanted = Items(Find(v.outputs, "r_abs_diagonal"), true);
    for (size_t i = 0; i < as.size(); ++i) {
      for (int64_t d = 0; d < wanted[i].rows; ++d) {
        EXPECT_NEAR(std::abs(rs[i].at(d, d)), wanted[i].data[d].real(), eps * 256);
      }
      ExpectSame(Times(Adjoint(rs[i]), rs[i]), Times(Adjoint(as[i]), as[i]), eps, "gram");
      if (r_only) continue;
      const Matrix q = Items(result["q"])[i];
      ExpectSame(Times(q, rs[i]), as[i], eps, "q r");
      ExpectSame(Times(Adjoint(q), q), Unit(q.columns), eps, "q^H q");
    }
    const Value& shape = Find(v.outputs, "r_shape");
    ASSERT_EQ(shape.size(), result["r"].shape.size());
    for (size_t d = 0; d < shape.size(); ++d) EXPECT_EQ(shape.at(d), result["r"].shape[d]);
  });
}

TEST_P(Linalg, EighKeepsTheInvariantsOfTheRecording) {
  Replay("eigh", {"w"}, [&](const Vector& v) {
    const Result result = Run(v.operation, v.inputs, Open({"w", "v", "info"}));
    const double eps = Epsilon(v.inputs[0].second.dtype);
    EXPECT_TRUE(Near(result["w"], Find(v.outputs, "w"), 8, 64));
    const auto vs = Items(result["v"]);
    const auto ws = Items(result["w"], true);
    for (size_t i = 0; i < vs.size(); ++i) {
      ExpectSame(Times(Adjoint(vs[i]), vs[i]), Unit(vs[i].columns), eps, "v^H v");
      EXPECT_EQ(result["info"].at(i), 0);
    }
    if (!Has(v.outputs, "projectors")) return;
    const auto projectors = Items(Find(v.outputs, "projectors"));
    for (size_t i = 0; i < projectors.size(); ++i) {
      const Matrix& all = vs[i / vs[0].columns];
      Matrix one{all.rows, 1, {}};
      for (int64_t r = 0; r < all.rows; ++r) one.data.push_back(all.at(r, i % all.columns));
      ExpectSame(Times(one, Adjoint(one)), projectors[i], eps * 32, "projector");
    }
  });
}

TEST_P(Linalg, SvdKeepsTheInvariantsOfTheRecording) {
  Replay("svd", {"s"}, [&](const Vector& v) {
    const Result result = Run(v.operation, v.inputs, Open({"u", "s", "vh", "info"}));
    const double eps = Epsilon(v.inputs[0].second.dtype);
    const Value& s = Find(v.outputs, "s");
    double scale = 1;
    for (Number number : s.data) scale = std::max(scale, std::abs(number));
    EXPECT_TRUE(Near(result["s"], s, scale, 64));
    const auto as = Items(v.inputs[0].second), us = Items(result["u"]), vhs = Items(result["vh"]),
               ss = Items(result["s"], true);
    for (size_t i = 0; i < as.size(); ++i) {
      ExpectSame(Times(Adjoint(us[i]), us[i]), Unit(us[i].columns), eps, "u^H u");
      ExpectSame(Times(vhs[i], Adjoint(vhs[i])), Unit(vhs[i].rows), eps, "vh vh^H");
      const int64_t k = ss[i].rows;
      const Matrix right = Adjoint(Left(Adjoint(vhs[i]), k));
      ExpectSame(Times(Times(Left(us[i], k), Diagonal(ss[i])), right), as[i], eps, "u s vh");
    }
    for (const char* name : {"u", "vh"}) {
      const Value& shape = Find(v.outputs, std::string(name) + "_shape");
      ASSERT_EQ(shape.size(), result[name].shape.size());
      for (size_t d = 0; d < shape.size(); ++d) EXPECT_EQ(shape.at(d), result[name].shape[d]);
    }
  });
}

TEST_P(Linalg, LeastSquaresAreAsRecordedAndUnsaidWhereTorchIsSilent) {
  Replay("lstsq", {"x"}, [&](const Vector& v) {
    const Result result = Run(v.operation, v.inputs, Open({"x", "residuals", "rank"}));
    EXPECT_TRUE(Near(result["x"], Find(v.outputs, "x"), 4, 256));
    const Value &residuals = Find(v.outputs, "residuals"), &rank = Find(v.outputs, "rank");
    for (size_t i = 0; i < result["residuals"].size(); ++i) {
      if (residuals.size() == 0) {
        EXPECT_TRUE(std::isnan(result["residuals"].at(i)));
      } else {
        EXPECT_NEAR(result["residuals"].at(i), residuals.at(i),
                    1024 * Epsilon(v.inputs[0].second.dtype));
      }
    }
    for (size_t i = 0; i < result["rank"].size(); ++i) {
      EXPECT_EQ(result["rank"].at(i), rank.size() == 0 ? -1 : rank.at(i));
    }
  });
}

constexpr DType kNumbers[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

// Diagonally heavy, so that it is far from singular.
Value Heavy(DType dtype, Extents shape, int seed) {
  Value a = RandomValue(dtype, shape, seed);
  const int64_t n = shape.back();
  for (size_t i = 0; i < a.size(); ++i) {
    if (static_cast<int64_t>(i) % (n * n) % (n + 1) == 0) a.data[i] += 2.0 * n;
  }
  return a;
}

TEST_P(Linalg, ABatchOfStridedMatricesIsInvertedAndSolvedInEveryType) {
  for (DType dtype : kNumbers) {
    const Value a = WithStrides(Heavy(dtype, {3, 2, 20, 20}, 1), {2, 1, 120, 6});
    v1::Operation inv;
    inv.mutable_inv();
    const auto ys = Items(Run(inv, {{"a", a}}, Open({"y"}))["y"]);
    const auto as = Items(a);
    for (size_t i = 0; i < as.size(); ++i) {
      ExpectSame(Times(as[i], ys[i]), Unit(20), Epsilon(dtype), "a inv(a)");
    }
    for (bool left : {true, false}) {
      v1::Operation solve;
      solve.mutable_solve()->set_left(left);
      const Value b = RandomValue(dtype, left ? Extents{2, 20, 3} : Extents{2, 3, 20}, 2);
      const auto xs = Items(Run(solve, {{"a", a}, {"b", b}}, Open({"x"}))["x"]);
      const auto bs = Items(b);
      ASSERT_EQ(xs.size(), 6u);
      for (size_t i = 0; i < xs.size(); ++i) {
        const Matrix product = left ? Times(as[i], xs[i]) : Times(xs[i], as[i]);
        ExpectSame(product, bs[i % 2], Epsilon(dtype), "a x");
      }
    }
  }
}

TEST_P(Linalg, LargerMatricesAreFactoredInEveryType) {
  for (DType dtype : kNumbers) {
    const double eps = Epsilon(dtype);
    const Value a = RandomValue(dtype, {2, 70, 50}, 3);
    const auto as = Items(a);
    v1::Operation svd, qr, lu;
    svd.mutable_svd()->set_full_matrices(false);
    qr.mutable_qr();
    lu.mutable_lu();
    const Result s = Run(svd, {{"a", a}}, Open({"u", "s", "vh"}));
    const Result q = Run(qr, {{"a", a}}, Open({"q", "r"}));
    const Result l = Run(lu, {{"a", a}}, Open({"lu", "pivots", "p", "l", "u"}));
    // Without vectors, the same values.
    EXPECT_TRUE(Near(Run(svd, {{"a", a}}, Open({"s"}))["s"], s["s"], 50, 32));
    for (size_t i = 0; i < as.size(); ++i) {
      const Matrix u = Items(s["u"])[i], vh = Items(s["vh"])[i], d = Items(s["s"], true)[i];
      ExpectSame(Times(Times(u, Diagonal(d)), vh), as[i], eps, "u s vh");
      ExpectSame(Times(Items(q["q"])[i], Items(q["r"])[i]), as[i], eps, "q r");
      ExpectSame(Times(Items(l["p"])[i], Times(Items(l["l"])[i], Items(l["u"])[i])), as[i], eps,
                 "p l u");
    }
    Value gram = RandomValue(dtype, {60, 60}, 4);
    gram.data = Times(Items(gram)[0], Adjoint(Items(gram)[0])).data;
    for (int64_t i = 0; i < 60; ++i) gram.data[i * 61] += 60.0;
    v1::Operation cholesky, eigh;
    cholesky.mutable_cholesky();
    eigh.mutable_eigh();
    const Matrix factor = Items(Run(cholesky, {{"a", gram}}, Open({"l"}))["l"])[0];
    ExpectSame(Times(factor, Adjoint(factor)), Items(gram)[0], eps, "l l^H");
    const Result e = Run(eigh, {{"a", gram}}, Open({"w", "v"}));
    const Matrix v = Items(e["v"])[0];
    ExpectSame(Times(Times(v, Diagonal(Items(e["w"], true)[0])), Adjoint(v)), Items(gram)[0], eps,
               "v w v^H");
  }
}

TEST_P(Linalg, AnUnboundInfoNamesTheMatrixAndThePivot) {
  v1::Operation inv;
  inv.mutable_inv();
  const Value a = MakeValue(DType::kF64, {2, 2, 2}, {1, 2, 3, 4, 1, 2, 2, 4});
  const auto bound = Run(inv, {{"a", a}}, Open({"y", "info"}));
  EXPECT_EQ(bound["info"].at(0), 0);
  EXPECT_EQ(bound["info"].at(1), 2);
  EXPECT_THAT(Refused(inv, {{"a", a}}, Open({"y"})), Contains(Reason::kMatrixSingular));
}

TEST_P(Linalg, NeitherNanNorInfinityNorEmptyMatricesEndIt) {
  for (DType dtype : kNumbers) {
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      for (int64_t n : {1, 2, 5, 40}) {
        Value all = MakeValue(dtype, {n, n}), one = Heavy(dtype, {n, n}, 5);
        std::fill(all.data.begin(), all.data.end(), bad);
        one.data[(n / 2) * n + n / 2] = bad;
        const Value b = RandomValue(dtype, {n, 2}, 6);
        for (const Value& a : {all, one}) {
          v1::Operation o;
          o.mutable_inv();
          Run(o, {{"a", a}}, Open({"y", "info"}));
          o.mutable_solve();
          Run(o, {{"a", a}, {"b", b}}, Open({"x", "info"}));
          o.mutable_lu();
          const Value pivots = Run(o, {{"a", a}}, Open({"lu", "pivots"}))["pivots"];
          for (Number pivot : pivots.data) {
            EXPECT_TRUE(pivot.real() >= 1 && pivot.real() <= n) << pivot;
          }
          o.mutable_det();
          EXPECT_FALSE(std::isfinite(std::abs(Run(o, {{"a", a}}, Open({"det"}))["det"].data[0])));
          o.mutable_qr();
          Run(o, {{"a", a}}, Open({"q", "r"}));
          o.mutable_cholesky();
          Run(o, {{"a", a}}, Open({"l", "info"}));
          o.mutable_eigh();
          EXPECT_THAT(Refused(o, {{"a", a}}, Open({"w", "v"})), Contains(Reason::kNotConverged));
          o.mutable_svd();
          EXPECT_THAT(Refused(o, {{"a", a}}, Open({"s"})), Contains(Reason::kNotConverged));
          for (int driver = 1; driver <= 4; ++driver) {
            o.mutable_lstsq()->set_driver(static_cast<v1::LstsqDriver>(driver));
            const auto x = Run(o, {{"a", a}, {"b", b}}, Open({"x"}))["x"];
            EXPECT_TRUE(std::isnan(x.at(0)));
          }
        }
      }
    }
    for (Extents shape : {Extents{0, 0}, Extents{0, 3}, Extents{3, 0}, Extents{0, 2, 3}}) {
      v1::Operation o;
      const Value a = MakeValue(dtype, shape);
      o.mutable_qr()->set_mode(v1::QR_MODE_COMPLETE);
      Run(o, {{"a", a}}, Open({"q", "r"}));
      o.mutable_svd();
      Run(o, {{"a", a}}, Open({"u", "s", "vh", "info"}));
      o.mutable_lu();
      Run(o, {{"a", a}}, Open({"lu", "pivots", "p", "l", "u", "info"}));
      Extents sides = shape;
      sides.back() = 2;
      o.mutable_lstsq();
      Run(o, {{"a", a}, {"b", MakeValue(dtype, sides)}}, Open({"x", "residuals", "rank"}));
    }
  }
}

TEST_P(Linalg, WhatPassesThirtyTwoBitsIsTooLarge) {
  // Refused before anything is allocated: the operands are described, not made.
  OperationSpec spec;
  spec.kind = OpKind::kDet;
  spec.attributes = DetAttributes{};
  OperandSpec a;
  a.name = "a";
  a.type = RowMajor(DType::kF64, {int64_t{1} << 17, int64_t{1} << 17});
  OperandSpec det;
  det.name = "det";
  det.use = Use::kOut;
  det.type = RowMajor(DType::kF64, {});
  OperandSpec absent;
  absent.present = false;
  spec.operands = {a, det, absent, absent};
  const auto plan = device().BuildPlan(spec, TestFlags(), std::vector<uint8_t>(4, 6));
  EXPECT_EQ(ReasonOf(plan.status()), Reason::kSizeTooLarge);
}

INSTANTIATE_TEST_SUITE_P(Devices, Linalg, ::testing::Values(0),
                         [](const auto& info) { return DeviceFactories()[info.param].name; });

}  // namespace
}  // namespace backendd::worker
