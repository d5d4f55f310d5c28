// One step of a program as the device seam sees it: kind, attributes, the types of its operands. No
// buffers, no bytes. Decode() reads the wire's message, Infer() says what the outputs must be: the
// verifier and the SDK's builder call the same two functions.
#ifndef BACKENDD_SHARED_OPERATION_OPERATION_H_
#define BACKENDD_SHARED_OPERATION_OPERATION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "backendd/v1/operation.pb.h"
#include "shared/operation/attributes.h"
#include "shared/status/error.h"
#include "shared/tensor.h"

namespace backendd {

// The field number of the operation in the wire's oneof.
using OpKind = v1::Operation::KindCase;
absl::string_view KindName(OpKind kind);  // "convolution_forward"

// How an operand takes part.
enum class Use : uint8_t { kIn, kOut, kInOut };

struct OperandSpec {
  absl::string_view name;  // of the message's field: "a", "y"; static storage
  int index = 0;           // within a repeated field
  Use use = Use::kIn;
  bool present = true;  // optional operands that are absent keep their place
  bool required = true;
  TensorType type;
};

// Where an operand lies; parallel to OperationSpec::operands.
struct OperandPlace {
  uint64_t buffer = 0;
  uint64_t offset_bytes = 0;
};

struct OperationSpec {
  OpKind kind = v1::Operation::KIND_NOT_SET;
  Attributes attributes;  // std::variant of one struct per operation
  absl::InlinedVector<OperandSpec, 6>
      operands;  // in the order of the message's fields; each op's file names the places
};

// One operation of a request.
struct DecodedOperation {
  OperationSpec spec;
  absl::InlinedVector<OperandPlace, 6> places;
};

// Reads one operation. Violations name `path` + ".gemm.a.shape". Checks what needs no other
// operand: known enumerators, dtypes, rank <= 8, extents 0..2^48-1, strides >= 0 (outputs: no
// overlap with itself), sizes without overflow. OP_UNSUPPORTED for a kind that no Decode exists
// for.
DecodedOperation Decode(const v1::Operation& operation, absl::string_view path,
                        std::vector<Violation>* violations);

// Checks the operands against each other and the attributes, and fills in the types of outputs that
// are absent but wanted: `spec.operands[i].type` of an output with dtype kUnspecified is set
// (row-major), any other output must match. Pure. All violations at once.
void Infer(OperationSpec& spec, absl::string_view path, std::vector<Violation>* violations);

// Appends the canonical bytes of kind, attributes and operand types: the device-independent part of
// a plan key.
void AppendKey(const OperationSpec& spec, std::string* key);

// solve and lstsq: b is vectors where it has one dimension or the shape of a without its last.
bool RightSidesAreVectors(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_OPERATION_H_
