// gemm by oneDNN (f32) or OpenBLAS: y = epilogue(alpha a b + beta c + bias). What the library
// leaves (c, bias, epilogue, odd strides, empty extents) is done here.
#include <cblas.h>

#include <complex>

#include "server/worker/device/cpu/activation.h"
#include "server/worker/device/cpu/gemm_integer.h"
#include "server/worker/device/cpu/kernel.h"
#include "server/worker/device/cpu/loop.h"
#include "server/worker/device/cpu/onednn.h"
#include "server/worker/device/cpu/precision.h"

namespace backendd::worker {
namespace {

enum { kA, kB, kC, kBias, kY };

template <class T>
struct IsComplexType : std::false_type {};
template <class T>
struct IsComplexType<std::complex<T>> : std::true_type {};

// One matrix operand: rows x columns at (row, column) steps, one for every item of its own batch.
struct Matrix {
  Extents shape, strides;  // of its own view, transposed already: [..., rows, columns]
  bool conjugate = false;
  bool packed = false;  // copied into the workspace, row-major
  uint64_t offset = 0;

  int64_t rows() const { return shape[shape.size() - 2]; }
  int64_t columns() const { return shape.back(); }
  int64_t row_step() const { return strides[strides.size() - 2]; }
  int64_t column_step() const { return strides.back(); }
  // Whether one of the two steps is 1 and the other reaches over it, as BLAS wants.
  bool by_rows() const { return Fits(column_step(), columns(), row_step(), rows()); }
  bool by_columns() const { return Fits(row_step(), rows(), column_step(), columns()); }
  int64_t leading() const {
    return by_rows() ? Lead(row_step(), rows(), columns()) : Lead(column_step(), columns(), rows());
  }

 private:
  static bool Fits(int64_t inner, int64_t inner_count, int64_t outer, int64_t outer_count) {
    return (inner == 1 || inner_count <= 1) &&
           (outer >= std::max<int64_t>(1, inner_count) || outer_count <= 1);
  }
  static int64_t Lead(int64_t outer, int64_t outer_count, int64_t inner_count) {
    return outer_count <= 1 ? std::max<int64_t>(1, inner_count)
                            : std::max<int64_t>(outer, std::max<int64_t>(1, inner_count));
  }
};

Matrix MakeMatrix(const TensorType& type, v1::Transpose transpose) {
  Matrix matrix{type.shape, type.strides};
  if (transpose != v1::TRANSPOSE_N) {
    std::swap(matrix.shape.back(), matrix.shape[matrix.shape.size() - 2]);
    std::swap(matrix.strides.back(), matrix.strides[matrix.strides.size() - 2]);
  }
  matrix.conjugate = transpose == v1::TRANSPOSE_C && IsComplex(type.dtype);
  return matrix;
}

// A copy of the matrix in the workspace where the library cannot take it as it lies.
template <class T>
Kernel Pack(Builder& b, int place, Matrix* matrix) {
  if (!matrix->conjugate && (matrix->by_rows() || matrix->by_columns())) return nullptr;
  const Extents dense = RowMajorStrides(matrix->shape);
  const auto nest = MakeNest<2>(matrix->shape, {matrix->strides, dense});
  int64_t count = 1;
  for (int64_t extent : matrix->shape) count *= extent;
  matrix->offset = b.Reserve(count * sizeof(T));
  matrix->packed = true;
  matrix->strides = dense;
  b.plan.choice.copied_bytes += count * sizeof(T);
  return [nest, place, offset = matrix->offset, conjugate = matrix->conjugate](const Call& call) {
    const T* from = call.At<T>(place);
    T* to = call.Work<T>(offset);
    if constexpr (IsComplexType<T>::value) {
      if (conjugate) {
        Map1(nest, from, to, [](T value) { return std::conj(value); });
        return absl::OkStatus();
      }
    }
    Map1(nest, from, to, [](T value) { return value; });
    return absl::OkStatus();
  };
}

// y = beta c + bias, by what there is of them; nothing of both: y is not touched.
template <class T>
Kernel Initial(Builder& b, const TensorType& target, bool to_workspace, uint64_t offset, T beta) {
  const bool with_c = b.has(kC) && beta != T(0);
  const bool with_bias = b.has(kBias);
  const TensorType zero = RowMajor(target.dtype, {});
  const auto nest = MakeNest<3>(std::array<const TensorType*, 3>{
      with_c ? &b.type(kC) : &zero, with_bias ? &b.type(kBias) : &zero, &target});
  return [=](const Call& call) {
    T* y = to_workspace ? call.Work<T>(offset) : call.At<T>(kY);
    const T nothing = T(0);
    const T* c = with_c ? call.At<T>(kC) : &nothing;
    const T* bias = with_bias ? call.At<T>(kBias) : &nothing;
    if (!with_c) {
      Map2(nest, c, bias, y, [](T, T right) { return right; });
    } else if (!with_bias) {
      Map2(nest, c, bias, y, [beta](T left, T) { return beta * left; });
    } else {
      Map2(nest, c, bias, y, [beta](T left, T right) { return beta * left + right; });
    }
    return absl::OkStatus();
  };
}

template <class T>
void Epilogue(const Nest<2>& nest, const T* x, T* y, v1::Epilogue epilogue) {
  if constexpr (!IsComplexType<T>::value) {
    switch (epilogue) {
      case v1::EPILOGUE_RELU:
        return Map1(nest, x, y, [](T v) { return Relu(v); });
      case v1::EPILOGUE_GELU_ERF:
        return Map1(nest, x, y, [](T v) { return GeluErf(v); });
      case v1::EPILOGUE_GELU_TANH:
        return Map1(nest, x, y, [](T v) { return GeluTanh(v); });
      default:
        break;
    }
  }
  Map1(nest, x, y, [](T v) { return v; });
}

// The product of one batch item, or of `batch` of them for oneDNN.
struct Shape {
  int64_t m, n, k;
};

void Blas(Shape s, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* y, int64_t ldy) {
  cblas_sgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, alpha, a, lda, b, ldb, beta, y, ldy);
}
void Blas(Shape s, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* y, int64_t ldy) {
  cblas_dgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, alpha, a, lda, b, ldb, beta, y, ldy);
}
void Blas(Shape s, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::complex<float> alpha,
          const std::complex<float>* a, int64_t lda, const std::complex<float>* b, int64_t ldb,
          std::complex<float> beta, std::complex<float>* y, int64_t ldy) {
  cblas_cgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, &alpha, a, lda, b, ldb, &beta, y, ldy);
}
void Blas(Shape s, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::complex<double> alpha,
          const std::complex<double>* a, int64_t lda, const std::complex<double>* b, int64_t ldb,
          std::complex<double> beta, std::complex<double>* y, int64_t ldy) {
  cblas_zgemm(CblasRowMajor, ta, tb, s.m, s.n, s.k, &alpha, a, lda, b, ldb, &beta, y, ldy);
}

template <class T>
T Scalar(std::complex<double> value) {
  if constexpr (IsComplexType<T>::value) {
    return T(value.real(), value.imag());
  } else {
    return static_cast<T>(value.real());
  }
}

// Which library multiplies, and how; notes what was asked for and is not so.
struct Provider {
  bool onednn = false;
  onednn::Math math = onednn::Math::kStrict;
};

Provider Choose(Builder& b, DType dtype) {
  const CpuFlags& ids = b.cpu.flags;
  b.plan.choice.candidates = {"onednn", "openblas"};
  Provider provider;
  const bool enabled = b.On(ids.mkldnn_enabled);
  const std::string preferred = b.Text(ids.blas);
  const bool possible = dtype == DType::kF32;
  provider.onednn = possible && enabled && preferred != "openblas";
  if (preferred == "mkl") {
    b.Unmet(ids.blas, std::string(provider.onednn ? "onednn" : "openblas"), "NOT_BUILT",
            "MKL is not built in");
  } else if (preferred == "onednn" && !provider.onednn) {
    b.Unmet(ids.blas, std::string("openblas"), possible ? "OVERRULED" : "DTYPE",
            possible ? "mkldnn.enabled is false" : "oneDNN multiplies f32 only");
  }
  if (possible) provider.math = ChooseMath(b, ids.matmul_precision, provider.onednn);
  return provider;
}

template <class T>
absl::Status Build(Builder& b) {
  const auto& g = b.attributes<GemmAttributes>();
  const TensorType& y_type = b.type(kY);
  const T alpha = Scalar<T>(g.alpha * g.scale_a * g.scale_b), beta = Scalar<T>(g.beta);
  Matrix a = MakeMatrix(b.type(kA), g.trans_a), w = MakeMatrix(b.type(kB), g.trans_b);
  Matrix y{y_type.shape, y_type.strides};
  const Shape whole{y.rows(), y.columns(), a.columns()};
  const Provider provider = Choose(b, y_type.dtype);
  Choice& choice = b.plan.choice;
  choice.library = provider.onednn ? "onednn" : "openblas";
  choice.library_version = provider.onednn ? b.cpu.onednn_version : b.cpu.openblas_version;
  if (y_type.elements() == 0) {
    choice.algorithm = "empty";
    b.plan.kernel = [](const Call&) { return absl::OkStatus(); };
    return absl::OkStatus();
  }
  for (int64_t extent : {whole.m, whole.n, whole.k}) {
    if (extent > INT32_MAX) {
      return Error(Reason::kSizeTooLarge,
                   absl::StrCat("an extent of ", extent, " passes the library's 32-bit interface"));
    }
  }

  // A product into y where the library can write it, else beside it.
  const bool multiplies = whole.k > 0 && alpha != T(0);
  const bool direct = y.by_rows();
  const TensorType target_type = direct ? y_type : RowMajor(y_type.dtype, y_type.shape);
  uint64_t y_offset = 0;
  if (!direct) {
    y_offset = b.Reserve(target_type.elements() * sizeof(T));
    choice.copied_bytes += target_type.elements() * sizeof(T);
    y.strides = target_type.strides;
  }
  const bool starts = (b.has(kC) && beta != T(0)) || b.has(kBias) || !multiplies;
  std::vector<Kernel> steps;
  if (starts) steps.push_back(Initial<T>(b, target_type, !direct, y_offset, beta));

  choice.threads = 1;
  const double flops = 2.0 * y_type.elements() * whole.k * (IsComplexType<T>::value ? 4 : 1);
  if (multiplies) {
    if (flops > 4e6) choice.threads = b.cpu.threads;
    if (Kernel pack = Pack<T>(b, kA, &a)) steps.push_back(std::move(pack));
    if (Kernel pack = Pack<T>(b, kB, &w)) steps.push_back(std::move(pack));
    // Batches, as few dimensions as they come to; a matrix b for rows that follow each other is one
    // taller product.
    Extents batch(y.shape.begin(), y.shape.end() - 2);
    auto batch_strides = [&](const Matrix& matrix) {
      TensorType type;
      type.shape.assign(matrix.shape.begin(), matrix.shape.end() - 2);
      type.strides.assign(matrix.strides.begin(), matrix.strides.end() - 2);
      return BroadcastStrides(type, batch);
    };
    Nest<3> nest = MakeNest<3>(batch, {batch_strides(a), batch_strides(w), batch_strides(y)});
    Shape shape = whole;
    int64_t lda = a.leading(), ldb = w.leading(), ldy = y.leading();
    if (nest.count > 1 && nest.inner[1] == 0 && a.by_rows() && nest.inner[0] == lda * shape.m &&
        nest.inner[2] == ldy * shape.m && shape.m * nest.count <= INT32_MAX) {
      shape.m *= nest.count;
      nest.count = 1;
    }
    const CBLAS_TRANSPOSE ta = a.by_rows() ? CblasNoTrans : CblasTrans;
    const CBLAS_TRANSPOSE tb = w.by_rows() ? CblasNoTrans : CblasTrans;
    auto base = [&](const Matrix& matrix, int place) {
      return [packed = matrix.packed, offset = matrix.offset, place](const Call& call) {
        return packed ? call.Work<T>(offset) : call.At<T>(place);
      };
    };
    const auto a_at = base(a, kA);
    const auto b_at = base(w, kB);
    const auto y_at = [direct, y_offset](const Call& call) {
      return direct ? call.At<T>(kY) : call.Work<T>(y_offset);
    };
    if constexpr (std::is_same_v<T, float>) {
      if (provider.onednn) {
        onednn::MatmulProblem p;
        const bool together = nest.count > 1 && nest.inner[0] > 0 && nest.inner[1] > 0;
        p.batch = together ? nest.count : 1;
        p.m = shape.m;
        p.n = shape.n;
        p.k = shape.k;
        p.alpha = alpha;
        p.accumulate = starts;
        p.math = provider.math;
        p.threads = choice.threads;
        auto steps_of = [](int64_t* to, int64_t between, bool by_rows, int64_t leading) {
          to[0] = between;
          to[1] = by_rows ? leading : 1;
          to[2] = by_rows ? 1 : leading;
        };
        steps_of(p.a, nest.inner[0], a.by_rows(), lda);
        steps_of(p.b, nest.inner[1], w.by_rows(), ldb);
        steps_of(p.y, nest.inner[2], true, ldy);
        ASSIGN_OR_RETURN(onednn::Primitive primitive, onednn::MakeMatmul(p));
        choice.algorithm = primitive.implementation;
        choice.copied_bytes += primitive.copied_bytes;
        const uint64_t scratch = b.Reserve(primitive.scratch_bytes);
        steps.push_back([=, run = primitive.run](const Call& call) {
          absl::Status status;
          Walk(nest, [&](const Nest<3>::Steps& at) {
            for (int64_t i = 0; i < (together ? 1 : nest.count); ++i) {
              if (!status.ok()) return;
              status = run(a_at(call) + at[0] + i * nest.inner[0],
                           b_at(call) + at[1] + i * nest.inner[1],
                           y_at(call) + at[2] + i * nest.inner[2], call.workspace + scratch);
            }
          });
          return status;
        });
      }
    }
    if (!provider.onednn) {
      choice.algorithm = IsComplexType<T>::value ? (sizeof(T) == 8 ? "cgemm" : "zgemm")
                                                 : (sizeof(T) == 4 ? "sgemm" : "dgemm");
      steps.push_back([=](const Call& call) {
        const T keep = starts ? T(1) : T(0);
        Walk(nest, [&](const Nest<3>::Steps& at) {
          for (int64_t i = 0; i < nest.count; ++i) {
            Blas(shape, ta, tb, alpha, a_at(call) + at[0] + i * nest.inner[0], lda,
                 b_at(call) + at[1] + i * nest.inner[1], ldb, keep,
                 y_at(call) + at[2] + i * nest.inner[2], ldy);
          }
        });
        return absl::OkStatus();
      });
    }
  } else {
    choice.algorithm = "no product";
  }
  if (g.epilogue != v1::EPILOGUE_NONE || !direct) {
    const auto nest = MakeNest<2>(std::array<const TensorType*, 2>{&target_type, &y_type});
    steps.push_back([=, epilogue = g.epilogue](const Call& call) {
      const T* from = direct ? call.At<T>(kY) : call.Work<T>(y_offset);
      Epilogue(nest, from, call.At<T>(kY), epilogue);
      return absl::OkStatus();
    });
  }
  b.Cost(flops, sizeof(T) * (b.type(kA).elements() + b.type(kB).elements() + y_type.elements()));
  if (steps.size() == 1) {
    b.plan.kernel = std::move(steps[0]);
  } else {
    b.plan.kernel = [steps = std::move(steps)](const Call& call) {
      for (const Kernel& step : steps) RETURN_IF_ERROR(step(call));
      return absl::OkStatus();
    };
  }
  return absl::OkStatus();
}

absl::Status BuildGemm(Builder& b) {
  if (b.type(kA).dtype == b.type(kY).dtype && b.type(kB).dtype == b.type(kY).dtype) {
    switch (b.type(kY).dtype) {
      case DType::kF32:
        return Build<float>(b);
      case DType::kF64:
        return Build<double>(b);
      case DType::kC64:
        return Build<std::complex<float>>(b);
      case DType::kC128:
        return Build<std::complex<double>>(b);
      default:
        break;
    }
  }
  if (b.type(kY).dtype == DType::kS32) return BuildIntegerGemm(b);
  return Error(Reason::kOpUnsupported,
               absl::StrCat("operation 'gemm' is not offered for ", Name(b.type(kA).dtype),
                            " on the CPU; allowed: floats, complex, s8 and u8 by s8"));
}

constexpr KernelRow kRows[] = {{OpKind::kGemm, BuildGemm}};

}  // namespace

absl::Span<const KernelRow> GemmKernels() { return kRows; }

}  // namespace backendd::worker
