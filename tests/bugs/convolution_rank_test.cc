// A gradient whose dy has another rank than its dx ended the worker, and three of them took the
// device down for everybody: stride, padding and dilation are read by dy's rank, and the shape rule
// walked dx's. The ranks are compared first.
#include <gtest/gtest.h>

#include <vector>

#include "shared/operation/operation.h"

namespace backendd {
namespace {

v1::Operand Ones(int rank) {
  v1::Operand operand;
  operand.set_dtype(v1::DTYPE_F32);
  for (int i = 0; i < rank; ++i) operand.add_shape(1);
  return operand;
}

TEST(ConvolutionRank, OfEveryOperandIsComparedBeforeItIsWalked) {
  for (int dy = 0; dy <= 8; ++dy) {
    for (int w = 0; w <= 8; ++w) {
      for (int dx = 0; dx <= 8; ++dx) {
        v1::Operation input, weight;
        *input.mutable_convolution_input_gradient()->mutable_dy() = Ones(dy);
        *input.mutable_convolution_input_gradient()->mutable_w() = Ones(w);
        *input.mutable_convolution_input_gradient()->mutable_dx() = Ones(dx);
        *weight.mutable_convolution_weight_gradient()->mutable_x() = Ones(dx);
        *weight.mutable_convolution_weight_gradient()->mutable_dy() = Ones(dy);
        *weight.mutable_convolution_weight_gradient()->mutable_dw() = Ones(w);
        for (const v1::Operation& operation : {input, weight}) {
          std::vector<Violation> violations;
          DecodedOperation decoded = Decode(operation, "operations[0]", &violations);
          if (violations.empty()) Infer(decoded.spec, "operations[0]", &violations);
          const bool fits = dy == w && w == dx && dy >= 3 && dy <= 5;
          EXPECT_EQ(violations.empty(), fits) << "dy " << dy << " w " << w << " dx " << dx;
        }
      }
    }
  }
}

}  // namespace
}  // namespace backendd
