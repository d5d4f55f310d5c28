// The sizes of a recurrent operation and the places of its operands, for verifier and devices.
#ifndef BACKENDD_SHARED_OPERATION_RECURRENT_H_
#define BACKENDD_SHARED_OPERATION_RECURRENT_H_

#include "shared/operation/attributes.h"
#include "shared/tensor.h"

namespace backendd {

// weight_ih weight_hh bias_ih bias_hh weight_hr
inline constexpr int kRnnWeights = 5;
// Of weight_ih of a set (layer * directions + direction); of the set after the last one: y or dy.
inline int RnnWeightPlace(int64_t set) { return 3 + kRnnWeights * static_cast<int>(set); }

int RnnGates(v1::RnnMode mode);

struct RnnShape {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int64_t out = 0;  // width of h: hidden, or the projection's
  int64_t gates = 0, directions = 0, sets = 0;
  bool batched = false, batch_first = false;

  int64_t InputOf(int64_t set) const { return set < directions ? input : directions * out; }
  Extents State(int64_t width) const;
  Extents Output() const;
  Extents Weight(int64_t set, int which) const;
};

RnnShape ShapeOfRnn(const RnnAttributes& attributes, const Extents& x, int64_t hidden);

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_RECURRENT_H_
