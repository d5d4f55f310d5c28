// What an operation is told beside its operands: one struct per operation, defaults filled in. Pure
// data; `Tie` lists the members that make two operations different.
#ifndef BACKENDD_SHARED_OPERATION_ATTRIBUTES_H_
#define BACKENDD_SHARED_OPERATION_ATTRIBUTES_H_

#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "backendd/v1/operation.pb.h"
#include "shared/tensor.h"

namespace backendd {

struct GemmAttributes {
  v1::Transpose trans_a = v1::TRANSPOSE_N, trans_b = v1::TRANSPOSE_N;
  std::complex<double> alpha = 1, beta = 0;
  double scale_a = 1, scale_b = 1;
  v1::Epilogue epilogue = v1::EPILOGUE_NONE;
  v1::Accumulate accumulate = v1::ACCUMULATE_F32;
  auto Tie() const {
    return std::tie(trans_a, trans_b, alpha, beta, scale_a, scale_b, epilogue, accumulate);
  }
};

// Forward and both gradients. Every list has one entry per spatial dimension.
struct ConvolutionAttributes {
  Extents stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
  auto Tie() const {
    return std::tie(stride, padding, dilation, output_padding, groups, transposed);
  }
};

struct FftAttributes {
  v1::FftKind kind = v1::FFT_KIND_C2C_FORWARD;
  Extents dims;  // 0 .. rank - 1, the last is the half-complex one
  Extents n;     // one per dim, or none: what x and the kind say
  v1::FftNorm norm = v1::FFT_NORM_BACKWARD;
  v1::FftRigor rigor = v1::FFT_RIGOR_ESTIMATE;
  auto Tie() const { return std::tie(kind, dims, n, norm, rigor); }
};

struct SoftmaxAttributes {  // and its gradient
  int64_t dim = 0;          // 0 .. rank - 1; of a scalar 0
  bool log = false;
  auto Tie() const { return std::tie(dim, log); }
};

struct LayerNormAttributes {  // and its gradient
  Extents normalized_shape;
  double eps = 1e-5;
  auto Tie() const { return std::tie(normalized_shape, eps); }
};

struct BatchNormAttributes {  // and its gradient
  bool training = false;
  double momentum = 0.1, eps = 1e-5;
  auto Tie() const { return std::tie(training, momentum, eps); }
};

struct ActivationAttributes {  // and its gradient
  v1::ActivationFunction function = v1::ACTIVATION_FUNCTION_RELU;
  auto Tie() const { return std::tie(function); }
};

// And its gradient. Every list has one entry per spatial dimension.
struct PoolingAttributes {
  v1::PoolingKind kind = v1::POOLING_KIND_MAX;
  Extents kernel, stride, padding, dilation;
  bool ceil_mode = false, count_include_pad = true;
  int64_t divisor_override = 0;  // 0: none
  auto Tie() const {
    return std::tie(kind, kernel, stride, padding, dilation, ceil_mode, count_include_pad,
                    divisor_override);
  }
};

struct ReductionAttributes {
  v1::ReductionKind kind = v1::REDUCTION_KIND_SUM;
  Extents dim;  // 0 .. rank - 1, ascending; all dimensions where the wire names none
  bool keepdim = false;
  auto Tie() const { return std::tie(kind, dim, keepdim); }
};

struct CrossEntropyAttributes {  // and its gradient
  int64_t ignore_index = -100;
  v1::LossReduction reduction = v1::LOSS_REDUCTION_MEAN;
  double label_smoothing = 0;
  auto Tie() const { return std::tie(ignore_index, reduction, label_smoothing); }
};

struct EmbeddingAttributes {  // and its gradient
  std::optional<int64_t> padding_idx;
  bool scale_grad_by_freq = false;
  auto Tie() const { return std::tie(padding_idx, scale_grad_by_freq); }
};

struct SdpaAttributes {  // and its gradient
  bool is_causal = false, enable_gqa = false;
  double scale = 1, dropout_p = 0;
  auto Tie() const { return std::tie(is_causal, enable_gqa, scale, dropout_p); }
};

struct CopyAttributes {
  auto Tie() const { return std::tie(); }
};

struct FillAttributes {
  std::complex<double> value;  // floating and complex types
  int64_t integer = 0;         // integers and bool
  auto Tie() const { return std::tie(value, integer); }
};

// Write, read and barrier move bytes between message and device: the executor runs them by the
// device's Copy and CopyOut, no plan is made.
struct WriteAttributes {
  std::string bytes;  // elements of y's type in row-major order, exactly as many as y has
  auto Tie() const { return std::tie(bytes); }
};
struct ReadAttributes {
  auto Tie() const { return std::tie(); }
};
struct BarrierAttributes {
  auto Tie() const { return std::tie(); }
};

struct UnaryAttributes {
  v1::UnaryFunction function = v1::UNARY_FUNCTION_NEG;
  auto Tie() const { return std::tie(function); }
};

struct BinaryAttributes {
  v1::BinaryFunction function = v1::BINARY_FUNCTION_ADD;
  double alpha = 1;
  auto Tie() const { return std::tie(function, alpha); }
};

struct WhereAttributes {
  auto Tie() const { return std::tie(); }
};

struct RandomAttributes {
  v1::Distribution distribution = v1::DISTRIBUTION_UNIFORM;
  double low = 0, high = 1, mean = 0, std = 1;
  auto Tie() const { return std::tie(distribution, low, high, mean, std); }
};

struct DropoutAttributes {  // and its gradient
  double p = 0;
  auto Tie() const { return std::tie(p); }
};

struct SgdAttributes {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  auto Tie() const { return std::tie(momentum, dampening, weight_decay, nesterov); }
};

struct AdamAttributes {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;
  auto Tie() const { return std::tie(beta1, beta2, eps, weight_decay, decoupled); }
};

struct GroupedGemmAttributes {
  GemmAttributes gemm;
  bool ragged_rows = false;
  auto Tie() const { return std::tuple_cat(gemm.Tie(), std::tie(ragged_rows)); }
};

struct InvAttributes {
  auto Tie() const { return std::tie(); }
};
struct SolveAttributes {
  bool left = true;
  auto Tie() const { return std::tie(left); }
};
struct CholeskyAttributes {
  bool upper = false;
  auto Tie() const { return std::tie(upper); }
};
struct LuAttributes {
  bool pivot = true;
  auto Tie() const { return std::tie(pivot); }
};
struct QrAttributes {
  v1::QrMode mode = v1::QR_MODE_REDUCED;
  auto Tie() const { return std::tie(mode); }
};
struct DetAttributes {
  auto Tie() const { return std::tie(); }
};
struct EighAttributes {
  v1::Triangle uplo = v1::TRIANGLE_L;
  auto Tie() const { return std::tie(uplo); }
};
struct SvdAttributes {
  bool full_matrices = true;
  auto Tie() const { return std::tie(full_matrices); }
};
struct LstsqAttributes {
  v1::LstsqDriver driver = v1::LSTSQ_DRIVER_GELSY;
  double rcond = -1;  // negative: eps max(m, n)
  auto Tie() const { return std::tie(driver, rcond); }
};

struct EinsumAttributes {
  std::string equation;
  auto Tie() const { return std::tie(equation); }
};

struct RnnAttributes {  // and its gradient
  v1::RnnMode mode = v1::RNN_MODE_RNN_TANH;
  int64_t num_layers = 1;
  bool bidirectional = false, batch_first = false;
  Extents lengths;  // one per item, or none: all steps
  int64_t proj_size = 0;
  auto Tie() const {
    return std::tie(mode, num_layers, bidirectional, batch_first, lengths, proj_size);
  }
};

struct Sparse24Attributes {  // all four steps
  auto Tie() const { return std::tie(); }
};

struct QuantizeAttributes {   // and dequantize
  std::vector<double> scale;  // one, or one per index of axis
  Extents zero_point;         // as many
  int64_t axis = -1;          // 0 .. rank - 1; -1: per tensor
  auto Tie() const { return std::tie(scale, zero_point, axis); }
};

struct QuantizedLinearAttributes {
  v1::QuantizedLinearForm form = v1::QUANTIZED_LINEAR_FORM_STATIC;
  bool relu = false, reduce_range = false;
  double x_scale = 1, y_scale = 1;
  int64_t x_zero_point = 0, y_zero_point = 0;
  std::vector<double> w_scale;  // one, or one per row
  Extents w_zero_point;         // as many
  auto Tie() const {
    return std::tie(form, relu, reduce_range, x_scale, y_scale, x_zero_point, y_zero_point, w_scale,
                    w_zero_point);
  }
};

using Attributes =
    std::variant<std::monostate, GemmAttributes, ConvolutionAttributes, FftAttributes,
                 SoftmaxAttributes, LayerNormAttributes, BatchNormAttributes, ActivationAttributes,
                 PoolingAttributes, ReductionAttributes, CrossEntropyAttributes,
                 EmbeddingAttributes, CopyAttributes, FillAttributes, WriteAttributes,
                 ReadAttributes, BarrierAttributes, UnaryAttributes, BinaryAttributes,
                 WhereAttributes, RandomAttributes, DropoutAttributes, SgdAttributes,
                 AdamAttributes, SdpaAttributes, GroupedGemmAttributes, InvAttributes,
                 SolveAttributes, CholeskyAttributes, LuAttributes, QrAttributes, DetAttributes,
                 EighAttributes, SvdAttributes, LstsqAttributes, EinsumAttributes, RnnAttributes,
                 Sparse24Attributes, QuantizeAttributes, QuantizedLinearAttributes>;

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_ATTRIBUTES_H_
