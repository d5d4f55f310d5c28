// An ordered list of operations over buffers, built here, admitted whole by the worker, run as
// often as wanted.
#ifndef BACKENDD_CLIENT_BACKENDD_PROGRAM_H_
#define BACKENDD_CLIENT_BACKENDD_PROGRAM_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "backendd/buffer.h"
#include "backendd/v1/compute_service.pb.h"
#include "shared/status/error.h"

namespace backendd {

class Lease;
class SessionCore;
struct WorkerLink;

// What stands for a parameter of a prepared program in one run: as large and of the same type.
struct Binding {
  Tensor parameter, tensor;
};

struct SubmitOptions {
  v1::SubmitMode mode = v1::SUBMIT_MODE_COMPLETE;
  v1::StampDetail stamp_detail = v1::STAMP_DETAIL_FULL;
  absl::Duration deadline = absl::ZeroDuration();  // 0: the client's
  bool strict_flags = false;                       // FLAG_UNMET instead of falling back
  const Lease* lease = nullptr;                    // must still hold, else LEASE_STALE
  std::vector<Binding> bindings;                   // other parameters stand for themselves
};

// What became of one run.
struct Result {
  v1::SubmitResponse response;

  absl::Status status() const;  // OK, or what the operation that failed while running says
  std::string stamp() const;    // what really ran, on one line
  // What the `place`-th Read returned; empty where there is none.
  template <class T>
  std::vector<T> Read(int place) const {
    if (place >= response.reads_size()) return {};
    const std::string& bytes = response.reads(place).bytes();
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

// Move-only; one thread at a time. Each method adds an operation and answers its output; attributes
// and optional operands are fields of its message. Outputs that the message does not name are
// allocated with the program, kept from run to run and freed with it. A refused operation answers
// an invalid tensor; status() and Submit say all violations.
class Program {
 public:
  Program(std::shared_ptr<SessionCore> core, std::string device);
  Program(Program&&) noexcept = default;
  ~Program();

  Tensor Gemm(const Tensor& a, const Tensor& b, v1::Gemm op = {});
  Tensor ConvolutionForward(const Tensor& x, const Tensor& w, v1::ConvolutionForward op = {});
  // The gradients' shapes are told by `dx` and `dw`: stride makes several fit.
  void ConvolutionInputGradient(const Tensor& dy, const Tensor& w, const Tensor& dx,
                                v1::ConvolutionInputGradient op = {});
  void ConvolutionWeightGradient(const Tensor& x, const Tensor& dy, const Tensor& dw,
                                 v1::ConvolutionWeightGradient op = {});
  // Along the last dimension where `op` names none.
  Tensor Fft(const Tensor& x, v1::FftKind kind, v1::Fft op = {});
  Tensor Softmax(const Tensor& x, int64_t dim, v1::Softmax op = {});
  Tensor Activation(const Tensor& x, v1::ActivationFunction function, v1::Activation op = {});
  Tensor ActivationGradient(const Tensor& x, const Tensor& dy, v1::ActivationFunction function,
                            v1::ActivationGradient op = {});
  Tensor Reduction(const Tensor& x, v1::ReductionKind kind, v1::Reduction op = {});
  Tensor CrossEntropy(const Tensor& x, const Tensor& target, v1::CrossEntropy op = {});
  Tensor CrossEntropyGradient(const Tensor& x, const Tensor& target, const Tensor& dy,
                              v1::CrossEntropyGradient op = {});
  Tensor Unary(const Tensor& x, v1::UnaryFunction function, v1::Unary op = {});
  Tensor Binary(const Tensor& a, const Tensor& b, v1::BinaryFunction function, v1::Binary op = {});
  void Copy(const Tensor& x, const Tensor& y);
  void Fill(const Tensor& y, double value);
  void Read(const Tensor& x);
  void Sgd(const Tensor& param, const Tensor& grad, const Tensor& lr, v1::Sgd op = {});
  // Memory of the program's own, for outputs that are named.
  Tensor Allocate(DType dtype, absl::Span<const int64_t> shape);
  // Any operation. Outputs that are wanted carry an empty operand; they are allocated, and answered
  // in order. Nothing where it was refused.
  std::vector<Tensor> Add(v1::Operation operation);

  // From now on the worker keeps the operations, and Submit sends only which program and its
  // bindings; nothing can be added any more. Each parameter is a whole buffer, seen through any
  // view of it. A new session or worker gets the operations again by itself. Errors: those of
  // Submit, QUOTA_EXCEEDED.
  absl::Status Prepare(const std::vector<Tensor>& parameters = {});

  absl::Status status() const { return ErrorFrom(violations_); }
  int size() const { return operations_.size(); }
  // Errors: status(); SESSION_FORKED, DEVICE_LOST, and those of ComputeService.Submit. That an
  // operation failed while running is no error of Submit: Result::status().
  absl::StatusOr<Result> Submit(const SubmitOptions& options = {});

 private:
  Tensor One(v1::Operation operation);
  absl::Status AllocateOwn();
  // The worker to submit to; it has the own buffers and, once prepared, the operations.
  absl::StatusOr<std::shared_ptr<WorkerLink>> Worker();

  std::shared_ptr<SessionCore> core_;
  std::string device_;
  google::protobuf::RepeatedPtrField<v1::Operation> operations_;
  std::vector<Violation> violations_;
  std::vector<uint64_t> own_;  // buffers that the worker has
  uint64_t layout_ = 0;        // the buffer that outputs are laid out in now; 0: none yet
  uint64_t layout_bytes_ = 0;
  uint64_t id_ = 0;  // of the prepared program; 0: not prepared
  std::vector<uint64_t> parameters_;
  std::shared_ptr<WorkerLink> keeper_;  // who has it
};

}  // namespace backendd

#endif  // BACKENDD_CLIENT_BACKENDD_PROGRAM_H_
