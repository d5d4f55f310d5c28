// What gemm and grouped_gemm are told alike.
#ifndef BACKENDD_SHARED_OPERATION_GEMM_H_
#define BACKENDD_SHARED_OPERATION_GEMM_H_

#include "shared/operation/family.h"

namespace backendd {

template <class Message>
GemmAttributes ReadGemm(const Message& m, Reader& r, bool integers) {
  GemmAttributes g;
  g.trans_a = r.Enum("trans_a", m.trans_a(), v1::TRANSPOSE_N, v1::Transpose_IsValid);
  g.trans_b = r.Enum("trans_b", m.trans_b(), v1::TRANSPOSE_N, v1::Transpose_IsValid);
  g.alpha = r.Complex("alpha", m.alpha(), 1);
  g.beta = r.Complex("beta", m.beta(), 0);
  g.scale_a = m.has_scale_a() ? m.scale_a() : 1;
  g.scale_b = m.has_scale_b() ? m.scale_b() : 1;
  g.epilogue = r.Enum("epilogue", m.epilogue(), v1::EPILOGUE_NONE, v1::Epilogue_IsValid);
  g.accumulate = r.Enum("accumulate", m.accumulate(),
                        integers ? v1::ACCUMULATE_S32 : v1::ACCUMULATE_F32, v1::Accumulate_IsValid);
  return g;
}

// Places of the operands of grouped_gemm for `groups` groups: a[] b[] c[] offsets y[].
struct GroupedPlaces {
  int groups, offsets;
  int a(int i) const { return i; }
  int b(int i) const { return groups + i; }
  int c(int i) const { return 2 * groups + i; }  // where has_c()
  int y(int i) const { return offsets + 1 + i; }
  bool has_c() const { return offsets > 2 * groups; }
};
GroupedPlaces PlacesOfGroups(const OperationSpec& spec);

// One group of the list form as a gemm of its own.
OperationSpec GemmOfGroup(const OperationSpec& spec, const GroupedPlaces& places, int group);

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_GEMM_H_
