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

using Attributes =
    std::variant<std::monostate, GemmAttributes, ConvolutionAttributes, FftAttributes,
                 SoftmaxAttributes, LayerNormAttributes, BatchNormAttributes, ActivationAttributes,
                 PoolingAttributes, ReductionAttributes, CrossEntropyAttributes,
                 EmbeddingAttributes, CopyAttributes, FillAttributes, WriteAttributes,
                 ReadAttributes, BarrierAttributes, UnaryAttributes, BinaryAttributes,
                 WhereAttributes, RandomAttributes, DropoutAttributes, SgdAttributes,
                 AdamAttributes>;

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_ATTRIBUTES_H_
