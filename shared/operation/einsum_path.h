// In which order the operands of an einsum meet. Pure; the same on every device.
#ifndef BACKENDD_SHARED_OPERATION_EINSUM_PATH_H_
#define BACKENDD_SHARED_OPERATION_EINSUM_PATH_H_

#include <string>
#include <utility>
#include <vector>

#include "shared/operation/einsum.h"

namespace backendd {

enum class EinsumStrategy { kLeftToRight, kGreedy, kOptimal };
inline constexpr int kMostForOptimal = 14;  // operands; above it the search takes too long

// Two positions in the list of what is left, the lower first; both leave it and their product is
// appended. `cost` counts scalar multiplications and, where labels are summed, additions.
struct EinsumPath {
  std::vector<std::pair<int, int>> steps;
  double cost = 0;
};

// For two operands or more. kOptimal is for at most kMostForOptimal.
EinsumPath FindEinsumPath(const EinsumLabels& labels, EinsumStrategy strategy);

std::string ToText(const EinsumPath& path);  // "(1,2) (0,1)"

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_EINSUM_PATH_H_
