// Operations recorded from a real PyTorch, as messages of ours.
#ifndef BACKENDD_TESTS_CONTRACT_VECTORS_H_
#define BACKENDD_TESTS_CONTRACT_VECTORS_H_

#include <string>
#include <vector>

#include "tests/contract/harness.h"

namespace backendd::worker {

struct Vector {
  std::string id;
  v1::Operation operation;  // kind and attributes, no operands
  Operands inputs, outputs;
  std::string error, compare, note;  // empty: absent
};

// The vectors of <folder>/<file>.json. Operands are named as RunOperation wants them, outputs as
// recorded ("y.x86", "projector").
std::vector<Vector> ReadVectors(const std::string& folder, const std::string& file);

}  // namespace backendd::worker

#endif  // BACKENDD_TESTS_CONTRACT_VECTORS_H_
