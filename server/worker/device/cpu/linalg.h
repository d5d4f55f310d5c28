// Matrices of batches between strided views and LAPACK: its routines by type, its column-major
// order, its 32-bit sizes, its `info`.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_LINALG_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_LINALG_H_

#include <complex>
#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>

#include "server/worker/device/cpu/kernel.h"

namespace backendd::worker {

template <class T>
struct RealOfType {
  using type = T;
};
template <class T>
struct RealOfType<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOfType<T>::type;
template <class T>
inline constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

// The routine of the type. All are called in column-major order by their `_work` forms, which look
// for no NaN and allocate nothing.
template <class T, class S, class D, class C, class Z>
constexpr auto Routine(S s, D d, C c, Z z) {
  if constexpr (std::is_same_v<T, float>) {
    return s;
  } else if constexpr (std::is_same_v<T, double>) {
    return d;
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return c;
  } else {
    return z;
  }
}
template <class T>
constexpr char kLetter = Routine<T>('s', 'd', 'c', 'z');

// The matrices (or with rank 1: vectors, one column; or with rank 0: numbers) of one operand, one
// for each item of `batch`, to which the operand's own batch is broadcast.
struct Matrices {
  int place = -1;
  bool present = false;
  int64_t rows = 1, columns = 1, row_step = 0, column_step = 0;
  Extents batch, steps;

  int64_t At(int64_t item) const;  // offset in elements
  void Transpose();
};
Matrices MatricesOf(const OperationSpec& spec, int place, const Extents& batch, int rank);

// To and from column-major order; `lead` is between columns.
template <class T>
void Load(const Matrices& m, const T* from, T* to, int64_t lead) {
  for (int64_t j = 0; j < m.columns; ++j) {
    for (int64_t i = 0; i < m.rows; ++i) {
      to[i + j * lead] = from[i * m.row_step + j * m.column_step];
    }
  }
}
// write(i, j) is the element.
template <class T, class F>
void Store(const Matrices& m, const Call& call, int64_t item, F&& write) {
  if (!m.present) return;
  T* to = call.At<T>(m.place) + m.At(item);
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) to[i * m.row_step + j * m.column_step] = write(i, j);
  }
}

template <class T>
bool IsFinite(T value) {
  return std::isfinite(std::real(value)) && std::isfinite(std::imag(value));
}

// SIZE_TOO_LARGE for what the library's 32-bit integers do not hold.
absl::Status Fits32(std::initializer_list<int64_t> counts);

// A workspace size that a routine answered in a number of the type; float may have rounded it down.
template <class T>
absl::StatusOr<int> WorkSize(T answer) {
  const Real<T> size = std::nextafter(std::real(answer), std::numeric_limits<Real<T>>::max());
  RETURN_IF_ERROR(Fits32({static_cast<int64_t>(std::ceil(std::min<double>(size, 4e18)))}));
  return std::max(1, static_cast<int>(std::ceil(size)));
}

// Where LAPACK's finding goes: into `info` where it is bound, else it is the operation's fault.
struct Finding {
  Matrices info;
  Reason reason;
  absl::string_view sentence;
  // Whether the item's results are to be written.
  bool Take(const Call& call, int64_t item, int found) const;
};

// What every one of these operations begins with.
struct Frame {
  int64_t m, n, k;  // of a; k is the smaller one
  Extents batch;
  int64_t items;
};
absl::StatusOr<Frame> Begin(Builder& b);

int64_t Count(const Extents& extents);

// "dgetrf dgetri"
template <class T>
std::string Names(std::initializer_list<absl::string_view> routines) {
  std::string names;
  for (absl::string_view routine : routines) {
    absl::StrAppend(&names, names.empty() ? "" : " ", absl::string_view(&kLetter<T>, 1), routine);
  }
  return names;
}

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_LINALG_H_
