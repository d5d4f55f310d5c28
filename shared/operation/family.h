// Between operation.cc and the files of the operation families: the reader of operands and
// attributes, the check of operands against each other, and the row that each operation has in the
// table.
#ifndef BACKENDD_SHARED_OPERATION_FAMILY_H_
#define BACKENDD_SHARED_OPERATION_FAMILY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "shared/operation/operation.h"

namespace backendd {

// Reads the fields of one message, in the message's order.
class Reader {
 public:
  Reader(DecodedOperation* out, std::string path, std::vector<Violation>* violations)
      : out_(*out), path_(std::move(path)), violations_(*violations) {}

  void In(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kIn, true);
  }
  void MaybeIn(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kIn, false);
  }
  void Out(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kOut, true);
  }
  void MaybeOut(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kOut, false);
  }
  void InOut(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kInOut, true);
  }
  void MaybeInOut(absl::string_view name, bool has, const v1::Operand& o) {
    Add(name, has, o, Use::kInOut, false);
  }
  void Add(absl::string_view name, bool has, const v1::Operand& operand, Use use, bool required,
           int index = 0, bool repeated = false);

  // The enumerator, `fallback` where it was not said. ARGUMENT_INVALID for a number without a name.
  template <class E>
  E Enum(absl::string_view name, E value, E fallback, bool (*valid)(int)) {
    if (!valid(value)) {
      Bad(name, absl::StrCat("has no value of number ", static_cast<int>(value)));
      return fallback;
    }
    return static_cast<int>(value) == 0 ? fallback : value;
  }
  // A list with one number per spatial dimension; none: `fallback` for each.
  Extents List(absl::string_view name, const google::protobuf::RepeatedField<int64_t>& values,
               int count, int64_t fallback);
  // One real number, or two: a complex one.
  std::complex<double> Complex(absl::string_view name,
                               const google::protobuf::RepeatedField<double>& values,
                               double fallback);
  // -rank .. rank - 1, to 0 .. rank - 1. A scalar has one dimension here.
  int64_t Dim(absl::string_view name, int64_t dim, int rank);
  void Bad(absl::string_view field, absl::string_view sentence,
           Reason reason = Reason::kArgumentInvalid);

  const TensorType& type(int place) const { return out_.spec.operands[place].type; }
  DecodedOperation& out() { return out_; }

 private:
  DecodedOperation& out_;
  const std::string path_;
  std::vector<Violation>& violations_;
};

// One operation's operands against each other and the attributes.
class Check {
 public:
  Check(OperationSpec* spec, std::string path, std::vector<Violation>* violations)
      : spec_(*spec),
        path_(std::move(path)),
        violations_(*violations),
        before_(violations->size()) {}

  const TensorType& type(int place) const { return spec_.operands[place].type; }
  const Extents& shape(int place) const { return type(place).shape; }
  DType dtype(int place) const { return type(place).dtype; }
  bool has(int place) const { return spec_.operands[place].present; }
  int operands() const { return static_cast<int>(spec_.operands.size()); }
  template <class A>
  const A& attributes() const {
    return std::get<A>(spec_.attributes);
  }
  bool ok() const { return violations_.size() == before_; }
  const OperationSpec& spec() const { return spec_; }
  // An operation that this one is made of, under this one's path + `suffix`.
  void Part(OperationSpec& part, absl::string_view suffix) {
    Infer(part, absl::StrCat(path_, suffix), &violations_);
  }

  // Sets an output whose type was left open, else it must be just that. Absent: nothing.
  void Output(int place, DType dtype, absl::Span<const int64_t> shape);
  // The operand's dtype must be this one; its shape must be this one. Absent: nothing.
  void Dtype(int place, DType dtype);
  void Shape(int place, absl::Span<const int64_t> shape);
  void Rank(int place, int least, int most);
  // DTYPE_INVALID unless the dtype is f64, f32, f16 or bf16.
  void Floating(int place);
  void Bad(int place, Reason reason, absl::string_view sentence);
  void BadAttribute(absl::string_view name, absl::string_view sentence,
                    Reason reason = Reason::kArgumentInvalid);

 private:
  OperationSpec& spec_;
  const std::string path_;
  std::vector<Violation>& violations_;
  const size_t before_;
};

struct Family {
  OpKind kind;
  absl::string_view name;
  void (*decode)(const v1::Operation&, Reader&);
  void (*infer)(Check&);
};

// One list per file.
absl::Span<const Family> BytesFamilies();        // copy fill write read barrier
absl::Span<const Family> MultiplyFamilies();     // gemm
absl::Span<const Family> ConvolutionFamilies();  // convolution, pooling, with gradients
absl::Span<const Family> ElementFamilies();      // activation unary binary where random dropout ...
absl::Span<const Family> NormFamilies();  // softmax layer_norm batch_norm, losses, reduction, ...
absl::Span<const Family> TransformFamilies();  // fft
absl::Span<const Family> LinalgFamilies();     // inv solve cholesky lu qr det eigh svd lstsq
absl::Span<const Family> EinsumFamilies();
absl::Span<const Family> RecurrentFamilies();  // rnn rnn_gradient
absl::Span<const Family> QuantizedFamilies();  // quantize dequantize quantized_linear
absl::Span<const Family> SparseFamilies();     // sparse24_*
absl::Span<const Family> AttentionFamilies();  // sdpa sdpa_gradient
absl::Span<const Family> GroupedFamilies();    // grouped_gemm

}  // namespace backendd

#endif  // BACKENDD_SHARED_OPERATION_FAMILY_H_
