// qr, eigh, svd, lstsq by LAPACK, one matrix after the other.
#include <algorithm>

#include "server/worker/device/cpu/linalg.h"

namespace backendd::worker {
namespace {

constexpr absl::string_view kDiverged = "does not converge";
// LAPACK's own value for a NaN in the matrix of gesdd. No iteration of the library sees one.
constexpr int kNotFinite = -4;

template <class T>
auto Identity() {
  return [](int64_t i, int64_t j) { return T(i == j ? 1 : 0); };
}

template <class T>
absl::Status BuildQr(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t m = f.m, n = f.n, k = f.k;
  const v1::QrMode mode = b.attributes<QrAttributes>().mode;
  const int64_t columns = mode == v1::QR_MODE_COMPLETE ? m : k;  // of q
  constexpr auto geqrf = Routine<T>(LAPACKE_sgeqrf_work, LAPACKE_dgeqrf_work, LAPACKE_cgeqrf_work,
                                    LAPACKE_zgeqrf_work);
  constexpr auto orgqr = Routine<T>(LAPACKE_sorgqr_work, LAPACKE_dorgqr_work, LAPACKE_cungqr_work,
                                    LAPACKE_zungqr_work);
  int work_size = 1;
  if (k > 0) {
    T factor{}, form{}, nothing{};
    geqrf(LAPACK_COL_MAJOR, m, n, &nothing, m, &nothing, &factor, -1);
    orgqr(LAPACK_COL_MAJOR, m, columns, k, &nothing, m, &nothing, &form, -1);
    ASSIGN_OR_RETURN(const int one, WorkSize(factor));
    ASSIGN_OR_RETURN(const int other, WorkSize(form));
    work_size = std::max(one, other);
  }
  const uint64_t at = b.Reserve(m * std::max(n, columns) * sizeof(T)),
                 tau_at = b.Reserve(k * sizeof(T)), work_at = b.Reserve(work_size * sizeof(T));
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2), q = MatricesOf(b.spec, 1, f.batch, 2),
                 r = MatricesOf(b.spec, 2, f.batch, 2);
  b.plan.choice.algorithm = Names<T>({"geqrf", kIsComplex<T> ? "ungqr" : "orgqr"});
  b.plan.kernel = [=](const Call& call) {
    T *const work = call.Work<T>(at), *const tau = call.Work<T>(tau_at);
    T* const scratch = call.Work<T>(work_at);
    for (int64_t item = 0; item < f.items; ++item) {
      Load(a, call.At<T>(0) + a.At(item), work, m);
      if (k > 0) geqrf(LAPACK_COL_MAJOR, m, n, work, m, tau, scratch, work_size);
      Store<T>(r, call, item,
               [&](int64_t i, int64_t j) { return i <= j ? work[i + j * m] : T(0); });
      if (!q.present) continue;
      if (k == 0) {
        Store<T>(q, call, item, Identity<T>());
        continue;
      }
      orgqr(LAPACK_COL_MAJOR, m, columns, k, work, m, tau, scratch, work_size);
      Store<T>(q, call, item, [&](int64_t i, int64_t j) { return work[i + j * m]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
absl::Status BuildEigh(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t n = f.n;
  const bool upper = b.attributes<EighAttributes>().uplo == v1::TRIANGLE_U;
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2), w = MatricesOf(b.spec, 1, f.batch, 1),
                 v = MatricesOf(b.spec, 2, f.batch, 2);
  const Finding finding{MatricesOf(b.spec, 3, f.batch, 0), Reason::kNotConverged, kDiverged};
  // The size of its three workspaces, or the computation in them.
  const auto syevd = [n, job = v.present ? 'V' : 'N', uplo = upper ? 'U' : 'L'](
                         T* a, Real<T>* w, T* work, int size, Real<T>* real, int reals, int* whole,
                         int wholes) {
    constexpr auto routine = Routine<T>(LAPACKE_ssyevd_work, LAPACKE_dsyevd_work,
                                        LAPACKE_cheevd_work, LAPACKE_zheevd_work);
    if constexpr (kIsComplex<T>) {
      return routine(LAPACK_COL_MAJOR, job, uplo, n, a, n, w, work, size, real, reals, whole,
                     wholes);
    } else {
      return routine(LAPACK_COL_MAJOR, job, uplo, n, a, n, w, work, size, whole, wholes);
    }
  };
  int work_size = 1, reals = 1, wholes = 1;
  if (n > 0) {
    T work{}, nothing{};
    Real<T> w_nothing{}, real{};
    syevd(&nothing, &w_nothing, &work, -1, &real, -1, &wholes, -1);
    ASSIGN_OR_RETURN(work_size, WorkSize(work));
    ASSIGN_OR_RETURN(reals, WorkSize(real));
  }
  const uint64_t at = b.Reserve(n * n * sizeof(T)), w_at = b.Reserve(n * sizeof(Real<T>)),
                 work_at = b.Reserve(work_size * sizeof(T)),
                 real_at = b.Reserve(reals * sizeof(Real<T>)),
                 whole_at = b.Reserve(wholes * sizeof(int));
  b.plan.choice.algorithm = Names<T>({kIsComplex<T> ? "heevd" : "syevd"});
  b.plan.kernel = [=](const Call& call) {
    T* const work = call.Work<T>(at);
    Real<T>* const values = call.Work<Real<T>>(w_at);
    for (int64_t item = 0; item < f.items; ++item) {
      Load(a, call.At<T>(0) + a.At(item), work, n);
      bool finite = true;
      for (int64_t j = 0; j < n; ++j) {
        T* const column = work + j * n;
        finite &= upper ? std::all_of(column, column + j + 1, IsFinite<T>)
                        : std::all_of(column + j, column + n, IsFinite<T>);
      }
      int info = finite ? 0 : kNotFinite;
      if (finite && n > 0) {
        info = syevd(work, values, call.Work<T>(work_at), work_size, call.Work<Real<T>>(real_at),
                     reals, call.Work<int>(whole_at), wholes);
      }
      if (!finding.Take(call, item, info)) continue;
      Store<Real<T>>(w, call, item, [&](int64_t i, int64_t) { return values[i]; });
      Store<T>(v, call, item, [&](int64_t i, int64_t j) { return work[i + j * n]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

template <class T>
absl::Status BuildSvd(Builder& b) {
  ASSIGN_OR_RETURN(const Frame f, Begin(b));
  const int64_t m = f.m, n = f.n, k = f.k;
  const Matrices a = MatricesOf(b.spec, 0, f.batch, 2), u = MatricesOf(b.spec, 1, f.batch, 2),
                 s = MatricesOf(b.spec, 2, f.batch, 1), vh = MatricesOf(b.spec, 3, f.batch, 2);
  const Finding finding{MatricesOf(b.spec, 4, f.batch, 0), Reason::kNotConverged, kDiverged};
  const bool full = b.attributes<SvdAttributes>().full_matrices;
  const bool vectors = u.present || vh.present;
  const int64_t left = !vectors ? 0 : full ? m : k, right = !vectors ? 0 : full ? n : k;
  const int64_t ldv = std::max<int64_t>(1, right);
  const auto gesdd = [=, job = !vectors ? 'N'
                               : full   ? 'A'
                                        : 'S'](T* a, Real<T>* s, T* u, T* vh, T* work, int size,
                                             Real<T>* real, int* whole) {
    constexpr auto routine = Routine<T>(LAPACKE_sgesdd_work, LAPACKE_dgesdd_work,
                                        LAPACKE_cgesdd_work, LAPACKE_zgesdd_work);
    if constexpr (kIsComplex<T>) {
      return routine(LAPACK_COL_MAJOR, job, m, n, a, m, s, u, m, vh, ldv, work, size, real, whole);
    } else {
      return routine(LAPACK_COL_MAJOR, job, m, n, a, m, s, u, m, vh, ldv, work, size, whole);
    }
  };
  int work_size = 1;
  if (k > 0) {
    T work{}, nothing{};
    Real<T> real{};
    int whole = 0;
    gesdd(&nothing, &real, &nothing, &nothing, &work, -1, &real, &whole);
    ASSIGN_OR_RETURN(work_size, WorkSize(work));
  }
  // As gesdd's documentation asks; 7 k is what old versions want without vectors.
  const int64_t reals =
      !kIsComplex<T> ? 0 : std::max(7 * k, k * std::max(5 * k + 7, 2 * std::max(m, n) + 2 * k + 1));
  const uint64_t at = b.Reserve(m * n * sizeof(T)), s_at = b.Reserve(k * sizeof(Real<T>)),
                 u_at = b.Reserve(m * left * sizeof(T)), vh_at = b.Reserve(ldv * n * sizeof(T)),
                 work_at = b.Reserve(work_size * sizeof(T)),
                 real_at = b.Reserve(reals * sizeof(Real<T>)),
                 whole_at = b.Reserve(8 * k * sizeof(int));
  b.plan.choice.algorithm = Names<T>({"gesdd"});
  b.plan.kernel = [=](const Call& call) {
    T *const work = call.Work<T>(at), *const us = call.Work<T>(u_at),
             *const vhs = call.Work<T>(vh_at);
    Real<T>* const values = call.Work<Real<T>>(s_at);
    for (int64_t item = 0; item < f.items; ++item) {
      if (k == 0) {
        finding.Take(call, item, 0);
        Store<T>(u, call, item, Identity<T>());
        Store<T>(vh, call, item, Identity<T>());
        continue;
      }
      Load(a, call.At<T>(0) + a.At(item), work, m);
      int info = kNotFinite;
      if (std::all_of(work, work + m * n, IsFinite<T>)) {
        info = gesdd(work, values, us, vhs, call.Work<T>(work_at), work_size,
                     call.Work<Real<T>>(real_at), call.Work<int>(whole_at));
      }
      if (!finding.Take(call, item, info)) continue;
      Store<Real<T>>(s, call, item, [&](int64_t i, int64_t) { return values[i]; });
      Store<T>(u, call, item, [&](int64_t i, int64_t j) { return us[i + j * m]; });
      Store<T>(vh, call, item, [&](int64_t i, int64_t j) { return vhs[i + j * ldv]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

// The four drivers behind one call; each leaves x in b, and sets what it knows of rank and s.
template <class T>
struct LeastSquares {
  v1::LstsqDriver driver;
  int64_t m, n, nrhs;
  Real<T> rcond;

  int operator()(T* a, T* b, Real<T>* s, int* rank, T* work, int size, Real<T>* real,
                 int* whole) const {
    const int64_t ldb = std::max(m, n);
    auto with = [&](auto routine, auto third, auto... last) {
      if constexpr (kIsComplex<T>) {
        return routine(LAPACK_COL_MAJOR, m, n, nrhs, a, m, b, ldb, third, rcond, rank, work, size,
                       real, last...);
      } else {
        return routine(LAPACK_COL_MAJOR, m, n, nrhs, a, m, b, ldb, third, rcond, rank, work, size,
                       last...);
      }
    };
    switch (driver) {
      case v1::LSTSQ_DRIVER_GELS:
        return Routine<T>(LAPACKE_sgels_work, LAPACKE_dgels_work, LAPACKE_cgels_work,
                          LAPACKE_zgels_work)(LAPACK_COL_MAJOR, 'N', m, n, nrhs, a, m, b, ldb, work,
                                              size);
      case v1::LSTSQ_DRIVER_GELSD:
        return with(Routine<T>(LAPACKE_sgelsd_work, LAPACKE_dgelsd_work, LAPACKE_cgelsd_work,
                               LAPACKE_zgelsd_work),
                    s, whole);
      case v1::LSTSQ_DRIVER_GELSS:
        return with(Routine<T>(LAPACKE_sgelss_work, LAPACKE_dgelss_work, LAPACKE_cgelss_work,
                               LAPACKE_zgelss_work),
                    s);
      default:
        return with(Routine<T>(LAPACKE_sgelsy_work, LAPACKE_dgelsy_work, LAPACKE_cgelsy_work,
                               LAPACKE_zgelsy_work),
                    whole);
    }
  }
};

absl::string_view DriverName(v1::LstsqDriver driver) {
  switch (driver) {
    case v1::LSTSQ_DRIVER_GELS:
      return "gels";
    case v1::LSTSQ_DRIVER_GELSD:
      return "gelsd";
    case v1::LSTSQ_DRIVER_GELSS:
      return "gelss";
    default:
      return "gelsy";
  }
}

template <class T>
absl::Status BuildLstsq(Builder& b) {
  ASSIGN_OR_RETURN(Frame f, Begin(b));
  const auto& attributes = b.attributes<LstsqAttributes>();
  const v1::LstsqDriver driver = attributes.driver;
  const int64_t m = f.m, n = f.n, k = f.k, ldb = std::max(m, n);
  const bool vectors = RightSidesAreVectors(b.type(0).shape, b.type(1).shape);
  const int rank_of = vectors ? 1 : 2;
  const Extents& shape = b.type(2).shape;
  f.batch.assign(shape.begin(), shape.end() - rank_of);
  f.items = Count(f.batch);
  auto of = [&](int place, int rank) { return MatricesOf(b.spec, place, f.batch, rank); };
  const Matrices a = of(0, 2), rhs = of(1, rank_of), x = of(2, rank_of),
                 residuals = of(3, vectors ? 0 : 1), ranks = of(4, 0), singular = of(5, 1);
  const int64_t sides = rhs.columns;
  RETURN_IF_ERROR(Fits32({sides}));
  RETURN_IF_ERROR(Fits32({sides * ldb}));
  const Real<T> epsilon = std::numeric_limits<Real<T>>::epsilon();
  const LeastSquares<T> solve{
      driver, m, n, std::max<int64_t>(1, sides),
      attributes.rcond < 0 ? epsilon * Real<T>(ldb) : Real<T>(attributes.rcond)};
  int work_size = 1, wholes = static_cast<int>(std::max<int64_t>(1, n));
  int64_t reals = std::max(2 * n, 5 * k);
  if (k > 0) {
    T work{}, nothing{};
    Real<T> real{}, s{};
    int rank = 0, whole = 0;
    solve(&nothing, &nothing, &s, &rank, &work, -1, &real, &whole);
    ASSIGN_OR_RETURN(work_size, WorkSize(work));
    if (driver == v1::LSTSQ_DRIVER_GELSD) {
      wholes = std::max(wholes, whole);
      ASSIGN_OR_RETURN(const int asked, WorkSize(real));
      reals = std::max<int64_t>(reals, asked);
    }
  }
  const uint64_t a_at = b.Reserve(m * n * sizeof(T)),
                 b_at = b.Reserve(ldb * solve.nrhs * sizeof(T)),
                 s_at = b.Reserve(k * sizeof(Real<T>)), work_at = b.Reserve(work_size * sizeof(T)),
                 real_at = b.Reserve(reals * sizeof(Real<T>)),
                 whole_at = b.Reserve(wholes * sizeof(int));
  b.plan.choice.algorithm = Names<T>({DriverName(driver)});
  const bool by_svd = driver == v1::LSTSQ_DRIVER_GELSD || driver == v1::LSTSQ_DRIVER_GELSS;
  const Finding finding{Matrices{}, by_svd ? Reason::kNotConverged : Reason::kMatrixSingular,
                        by_svd ? kDiverged : "has not full rank, which gels needs"};
  b.plan.kernel = [=](const Call& call) {
    constexpr Real<T> kNaN = std::numeric_limits<Real<T>>::quiet_NaN();
    T *const as = call.Work<T>(a_at), *const bs = call.Work<T>(b_at);
    Real<T>* const values = call.Work<Real<T>>(s_at);
    int* const whole = call.Work<int>(whole_at);
    for (int64_t item = 0; item < f.items; ++item) {
      std::fill(bs, bs + ldb * solve.nrhs, T(0));
      Load(a, call.At<T>(0) + a.At(item), as, m);
      Load(rhs, call.At<T>(1) + rhs.At(item), bs, ldb);
      // The library's iterations need not end on NaN: it is given finite numbers only.
      const bool finite = std::all_of(as, as + m * n, IsFinite<T>) &&
                          std::all_of(bs, bs + ldb * solve.nrhs, IsFinite<T>);
      int rank = 0, info = 0;
      std::fill(whole, whole + wholes, 0);  // gelsy: no column is held in front
      std::fill(values, values + k, kNaN);
      if (!finite) {
        rank = -1;
        std::fill(bs, bs + ldb * solve.nrhs, T(kNaN));
      } else if (k > 0) {
        info = solve(as, bs, values, &rank, call.Work<T>(work_at), work_size,
                     call.Work<Real<T>>(real_at), whole);
      }
      if (driver == v1::LSTSQ_DRIVER_GELS) rank = finite ? static_cast<int>(n) : -1;
      if (!finding.Take(call, item, info)) continue;
      Store<T>(x, call, item, [&](int64_t i, int64_t j) { return bs[i + j * ldb]; });
      const bool known = finite && m > n && rank == n && driver != v1::LSTSQ_DRIVER_GELSY;
      Store<Real<T>>(residuals, call, item, [&](int64_t side, int64_t) {
        Real<T> sum = 0;
        for (int64_t i = n; i < m; ++i) sum += std::norm(bs[i + side * ldb]);
        return known ? sum : kNaN;
      });
      const int64_t told = driver == v1::LSTSQ_DRIVER_GELS ? -1 : rank;
      Store<int64_t>(ranks, call, item, [&](int64_t, int64_t) { return told; });
      Store<Real<T>>(singular, call, item, [&](int64_t i, int64_t) { return values[i]; });
    }
    return absl::OkStatus();
  };
  return absl::OkStatus();
}

constexpr KernelRow kRows[] = {
    {OpKind::kQr,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildQr<decltype(t)>(b); }); }},
    {OpKind::kEigh,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildEigh<decltype(t)>(b); }); }},
    {OpKind::kSvd,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildSvd<decltype(t)>(b); }); }},
    {OpKind::kLstsq,
     [](Builder& b) { return ByNumber(b, [&](auto t) { return BuildLstsq<decltype(t)>(b); }); }},
};

}  // namespace

absl::Span<const KernelRow> FactorKernels() { return kRows; }

}  // namespace backendd::worker
