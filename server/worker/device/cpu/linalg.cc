// inv, solve, cholesky, lu, det by LAPACK, one matrix after the other.
#include "server/worker/device/cpu/linalg.h"

#include <algorithm>

namespace backendd::worker {

int64_t Matrices::At(int64_t item) const {
  int64_t offset = 0;
  for (int d = static_cast<int>(batch.size()) - 1; d >= 0; --d) {
    offset += item % batch[d] * steps[d];
    item /= batch[d];
  }
  return offset;
}

void Matrices::Transpose() {
  std::swap(rows, columns);
  std::swap(row_step, column_step);
}

Matrices MatricesOf(const OperationSpec& spec, int place, const Extents& batch, int rank) {
  Matrices m;
  const OperandSpec& operand = spec.operands[place];
  m.place = place;
  m.present = operand.present;
  if (!m.present) return m;
  const TensorType& type = operand.type;
  const int own = type.rank() - rank;
  if (rank > 0) {
    m.rows = type.shape[own];
    m.row_step = type.strides[own];
  }
  if (rank > 1) {
    m.columns = type.shape[own + 1];
    m.column_step = type.strides[own + 1];
  }
  m.batch = batch;
  m.steps.assign(batch.size(), 0);
  for (int d = 0; d < own; ++d) {
    if (type.shape[d] != 1) m.steps[batch.size() - own + d] = type.strides[d];
  }
  return m;
}

absl::Status Fits32(std::initializer_list<int64_t> counts) {
  for (int64_t count : counts) {
    if (count <= INT32_MAX) continue;
    return Error(Reason::kSizeTooLarge,
                 absl::StrCat("a count of ", count, " passes LAPACK's 32-bit interface"));
  }
  return absl::OkStatus();
}

bool Finding::Take(const Call& call, int64_t item, int found) const {
  if (info.present) call.At<int32_t>(info.place)[info.At(item)] = found;
  if (found == 0) return true;
  if (!info.present && !call.fault->reason) {
    *call.fault = {reason, item, found,
                   absl::StrCat("matrix ", item, " ", sentence, " (info ", found, ")")};
  }
  return false;
}

int64_t Count(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

absl::StatusOr<Frame> Begin(Builder& b) {
  const Extents& shape = b.type(0).shape;
  Frame f;
  f.batch.assign(shape.begin(), shape.end() - 2);
  f.m = shape[shape.size() - 2];
  f.n = shape.back();
  f.k = std::min(f.m, f.n);
  f.items = Count(f.batch);
  RETURN_IF_ERROR(Fits32({f.m, f.n}));
  RETURN_IF_ERROR(Fits32({f.m * f.n, f.m * f.m, f.n * f.n}));
  b.plan.choice.library = "openblas";
  b.plan.choice.library_version = b.cpu.openblas_version;
  b.plan.choice.threads = b.cpu.threads;
  b.Cost(2.0 * f.items * f.m * f.n * f.k, 0);
  return f;
}

namespace {

constexpr absl::string_view kSingular = "is singular: a pivot is 0";

// LU in place with LAPACK's pivots. A matrix with NaN or Inf is factored here by the same rules:
// OpenBLAS looks for a pivot among NaN in vain and swaps rows that do not exist.
template <class T>
int Factor(int64_t m, int64_t n, T* a, int* pivots) {
  if (m == 0 || n == 0) return 0;
  if (std::all_of(a, a + m * n, IsFinite<T>)) {
    return Routine<T>(LAPACKE_sgetrf_work, LAPACKE_dgetrf_work, LAPACKE_cgetrf_work,
                      LAPACKE_zgetrf_work)(LAPACK_COL_MAJOR, m, n, a, m, pivots);
  }
  int info = 0;
  const auto size = [](T v) { return std::abs(std::real(v)) + std::abs(std::imag(v)); };
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    int64_t pivot = j;
    for (int64_t i = j + 1; i < m; ++i) {
      if (size(a[i + j * m]) > size(a[pivot + j * m])) pivot = i;
    }
    pivots[j] = static_cast<int>(pivot + 1);
    if (a[pivot + j * m] == T(0)) {
      if (info == 0) info = static_cast<int>(j + 1);
      continue;
    }
    for (int64_t c = 0; c < n; ++c) std::swap(a[j + c * m], a[pivot + c * m]);
    for (int64_t i = j + 1; i < m; ++i) {
      a[i + j * m] /= a[j + j * m];
      for (int64_t c = j + 1; c < n; ++c) a[i + c * m] -= a[i + j * m] * a[j + c * m];
    }
  }
  return info;
}

template <class T>
absl::Status BuildInv(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t n = f.n;
  constexpr auto getri = Routine<T>(LAPACKE_sgetri_work, LAPACKE_dgetri_work, LAPACKE_cgetri_work,
                                    LAPACKE_zgetri_work);
  int work_size = 1;
  if (n > 0) {
    T answer{}, nothing{};
    int pivot = 1;
    getri(LAPACK_COL_MAJOR, n, &nothing, n, &pivot, &answer, -1);
    ASSIGN_OR_RETURN(work_size, WorkSize(answer));
  }
  const uint64_t at = b.Reserve(n * n * sizeof(T)), pivots_at = b.Reserve(n * sizeof(int)),
                 work_at = b.Reserve(work_size * sizeof(T));
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2), y = MatricesOf(b.spec, 1, f.batch, 2);
  const Finding finding{MatricesOf(b.spec, 2, f.batch, 0), Reason::kMatrixSingular, kSingular};
  b.plan.choice.algorithm = Names<T>({"getrf", "getri"});
  b.plan.kernel = [=](const Call& call) {
    T* const work = call.Work<T>(at);
    int* const pivots = call.Work<int>(pivots_at);
    for (int64_t item = 0; item < f.items; ++item) {
      if (n > 0) Load(a, call.At<T>(0) + a.At(item), work, n);
      int info = Factor(n, n, work, pivots);
      if (info == 0 && n > 0) {
        info = getri(LAPACK_COL_MAJOR, n, work, n, pivots, call.Work<T>(work_at), work_size);
      }
      if (!finding.Take(call, item, info)) continue;
      Store<T>(y, call, item, [&](int64_t i, int64_t j) { return work[i + j * n]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

// All of a is factored first: right sides may share a matrix by broadcasting.
template <class T>
absl::Status BuildSolve(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const bool left = b.attributes<SolveAttributes>().left;
  const bool vectors = RightSidesAreVectors(b.type(0).shape, b.type(1).shape);
  const int rank = vectors ? 1 : 2;
  const Extents& shape = b.type(2).shape;
  const Extents batch(shape.begin(), shape.end() - rank);
  const int64_t n = f.n, items = Count(batch);
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2);
  // Which item of a belongs to an item of x: a's batch as a dense operand of its own.
  OperationSpec index;
  index.operands.push_back(OperandSpec{});
  index.operands[0].type = RowMajor(DType::kS64, f.batch);
  const Matrices factor = MatricesOf(index, 0, batch, 0);
  Matrices rhs = MatricesOf(b.spec, 1, batch, rank), x = MatricesOf(b.spec, 2, batch, rank);
  if (!left) {
    rhs.Transpose();
    x.Transpose();
  }
  RETURN_IF_ERROR(Fits32({x.columns}));
  RETURN_IF_ERROR(Fits32({x.columns * n}));
  const uint64_t factors_at = b.Reserve(f.items * n * n * sizeof(T)),
                 pivots_at = b.Reserve(f.items * n * sizeof(int)),
                 found_at = b.Reserve(f.items * sizeof(int)),
                 side_at = b.Reserve(n * x.columns * sizeof(T));
  const Finding finding{MatricesOf(b.spec, 3, f.batch, 0), Reason::kMatrixSingular, kSingular};
  const char transpose = left ? 'N' : 'T';
  b.plan.choice.algorithm = Names<T>({"getrf", "getrs"});
  b.plan.kernel = [=](const Call& call) {
    T* const factors = call.Work<T>(factors_at);
    int* const pivots = call.Work<int>(pivots_at);
    int* const found = call.Work<int>(found_at);
    for (int64_t item = 0; item < f.items; ++item) {
      if (n > 0) Load(a, call.At<T>(0) + a.At(item), factors + item * n * n, n);
      found[item] = Factor(n, n, factors + item * n * n, pivots + item * n);
      finding.Take(call, item, found[item]);
    }
    if (n == 0 || x.columns == 0) return absl::OkStatus();
    T* const side = call.Work<T>(side_at);
    for (int64_t item = 0; item < items; ++item) {
      const int64_t of = factor.At(item);
      if (found[of] != 0) continue;
      Load(rhs, call.At<T>(1) + rhs.At(item), side, n);
      Routine<T>(LAPACKE_sgetrs_work, LAPACKE_dgetrs_work, LAPACKE_cgetrs_work,
                 LAPACKE_zgetrs_work)(LAPACK_COL_MAJOR, transpose, n, x.columns,
                                      factors + of * n * n, n, pivots + of * n, side, n);
      Store<T>(x, call, item, [&](int64_t i, int64_t j) { return side[i + j * n]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
absl::Status BuildCholesky(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t n = f.n;
  const bool upper = b.attributes<CholeskyAttributes>().upper;
  const uint64_t at = b.Reserve(n * n * sizeof(T));
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2), l = MatricesOf(b.spec, 1, f.batch, 2);
  const Finding finding{MatricesOf(b.spec, 2, f.batch, 0), Reason::kNotPositiveDefinite,
                        "is not positive definite"};
  b.plan.choice.algorithm = Names<T>({"potrf"});
  b.plan.kernel = [=](const Call& call) {
    T* const work = call.Work<T>(at);
    for (int64_t item = 0; item < f.items; ++item) {
      int info = 0;
      if (n > 0) {
        Load(a, call.At<T>(0) + a.At(item), work, n);
        info = Routine<T>(LAPACKE_spotrf_work, LAPACKE_dpotrf_work, LAPACKE_cpotrf_work,
                          LAPACKE_zpotrf_work)(LAPACK_COL_MAJOR, upper ? 'U' : 'L', n, work, n);
      }
      // OpenBLAS lets a NaN pass for a pivot.
      for (int64_t j = 0; j < n && info == 0; ++j) {
        if (std::isnan(std::real(work[j + j * n]))) info = static_cast<int>(j + 1);
      }
      if (!finding.Take(call, item, info)) continue;
      Store<T>(l, call, item, [&](int64_t i, int64_t j) {
        return (upper ? i <= j : i >= j) ? work[i + j * n] : T(0);
      });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
absl::Status BuildLu(Builder& b) {
  if (!b.attributes<LuAttributes>().pivot) {
    return Error(Reason::kOpUnsupported,
                 "operation 'lu' without pivoting is not offered on the CPU");
  }
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t m = f.m;
  const uint64_t at = b.Reserve(m * f.n * sizeof(T)), pivots_at = b.Reserve(f.k * sizeof(int)),
                 rows_at = b.Reserve(m * sizeof(int64_t));
  auto of = [&](int place, int rank) { return MatricesOf(b.spec, place, f.batch, rank); };
  const Matrices a = of(0, 2), lu = of(1, 2), pivots_out = of(2, 1), info = of(3, 0), p = of(4, 2),
                 l = of(5, 2), u = of(6, 2);
  b.plan.choice.algorithm = Names<T>({"getrf"});
  b.plan.kernel = [=](const Call& call) {
    T* const work = call.Work<T>(at);
    int* const pivots = call.Work<int>(pivots_at);
    int64_t* const rows = call.Work<int64_t>(rows_at);
    for (int64_t item = 0; item < f.items; ++item) {
      Load(a, call.At<T>(0) + a.At(item), work, m);
      const int found = Factor(m, f.n, work, pivots);
      auto element = [&](int64_t i, int64_t j) { return work[i + j * m]; };
      Store<T>(lu, call, item, element);
      Store<int32_t>(pivots_out, call, item, [&](int64_t i, int64_t) { return pivots[i]; });
      Store<int32_t>(info, call, item, [&](int64_t, int64_t) { return found; });
      Store<T>(l, call, item,
               [&](int64_t i, int64_t j) { return i > j ? element(i, j) : T(i == j ? 1 : 0); });
      Store<T>(u, call, item, [&](int64_t i, int64_t j) { return i <= j ? element(i, j) : T(0); });
      std::iota(rows, rows + m, 0);
      for (int64_t i = 0; i < f.k; ++i) std::swap(rows[i], rows[pivots[i] - 1]);
      Store<T>(p, call, item, [&](int64_t i, int64_t j) { return T(rows[j] == i ? 1 : 0); });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
absl::Status BuildDet(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t n = f.n;
  const uint64_t at = b.Reserve(n * n * sizeof(T)), pivots_at = b.Reserve(n * sizeof(int));
  auto of = [&](int place, int rank) { return MatricesOf(b.spec, place, f.batch, rank); };
  const Matrices a = of(0, 2), det = of(1, 0), sign = of(2, 0), logarithm = of(3, 0);
  b.plan.choice.algorithm = Names<T>({"getrf"});
  b.plan.kernel = [=](const Call& call) {
    T* const work = call.Work<T>(at);
    int* const pivots = call.Work<int>(pivots_at);
    for (int64_t item = 0; item < f.items; ++item) {
      Load(a, call.At<T>(0) + a.At(item), work, n);
      Factor(n, n, work, pivots);
      T product = 1, direction = 1;
      Real<T> sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T pivot = work[i + i * n];
        const Real<T> size = std::abs(pivot);
        const Real<T> turn = pivots[i] == i + 1 ? 1 : -1;
        product *= pivot * turn;
        direction *= size == 0 ? T(0) : pivot / size * turn;
        sum += std::log(size);
      }
      Store<T>(det, call, item, [&](int64_t, int64_t) { return product; });
      Store<T>(sign, call, item, [&](int64_t, int64_t) { return direction; });
      Store<Real<T>>(logarithm, call, item, [&](int64_t, int64_t) { return sum; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

constexpr KernelRow kRows[] = {
    {OpKind::kInv,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildInv<decltype(t)>(b); }); }},
    {OpKind::kSolve,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildSolve<decltype(t)>(b); }); }},
    {OpKind::kCholesky,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildCholesky<decltype(t)>(b); }); }},
    {OpKind::kLu,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildLu<decltype(t)>(b); }); }},
    {OpKind::kDet,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildDet<decltype(t)>(b); }); }},
};

}  // namespace

absl::Span<const KernelRow> LinalgKernels() { return kRows; }

}  // namespace backendd::worker
