// Recorded vectors as values: tests/parity/vectors/operations/<operation>.json.
#ifndef BACKENDD_TESTS_CONTRACT_RECORDED_H_
#define BACKENDD_TESTS_CONTRACT_RECORDED_H_

#include <string>
#include <vector>

#include "tests/contract/harness.h"

namespace backendd::worker {

struct Vector {
  std::string id;
  v1::Operation operation;  // kind and attributes
  Operands inputs, outputs;
  std::string error;    // kind; empty: outputs hold
  std::string compare;  // "", exact, invariant, advisory
};

// Every vector of one file; a file that cannot be read is a failure of the test.
std::vector<Vector> ReadVectors(const std::string& path, const std::string& file);

}  // namespace backendd::worker

#endif  // BACKENDD_TESTS_CONTRACT_RECORDED_H_
