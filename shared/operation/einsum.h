// The equation of einsum, read once for verifier and devices.
#ifndef BACKENDD_SHARED_OPERATION_EINSUM_H_
#define BACKENDD_SHARED_OPERATION_EINSUM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "shared/status/error.h"
#include "shared/tensor.h"

namespace backendd {

// A..Z are labels 0..25, a..z 26..51; the dimensions of an ellipsis are 52 and on, counted so that
// the last one of every operand is the same label.
inline constexpr int kEinsumLetters = 52;
inline constexpr int kEinsumLabels = kEinsumLetters + kMaxRank;

struct EinsumLabels {
  std::vector<std::vector<int>> inputs;  // one label per dimension
  std::vector<int> output;
  int64_t extents[kEinsumLabels];  // of the labels that are used; elsewhere 1
};

// Reads `equation` for operands of these shapes. Returns the sentence of what is wrong, empty where
// nothing is, and its reason: ARGUMENT_INVALID or SHAPE_INVALID.
std::string ReadEinsum(const std::string& equation, absl::Span<const Extents> shapes,
                       EinsumLabels* labels, Reason* reason);

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_EINSUM_H_
