// oneDNN, its objects hidden: product and convolution of f32, strict or with inputs in bf16. The
// library's exceptions end here.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_ONEDNN_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_ONEDNN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "shared/tensor.h"

namespace backendd::worker::onednn {

std::string Version();  // "2.6.3"
// Turns the library's primitive cache off: plans are kept above the seam.
void DisableCache();
// bf16 in the instructions the library may use.
bool HasBf16();

enum class Math {
  kStrict,
  kFastBf16,    // f32 inputs, the library asked for bf16 inside
  kBf16Inputs,  // bf16 inputs, f32 output
};

// Built once, run by one thread at a time; `scratch` has scratch_bytes, aligned to 64.
struct Primitive {
  std::string implementation;
  uint64_t scratch_bytes = 0;
  uint64_t copied_bytes = 0;  // operands brought into another layout in the scratch
  std::function<absl::Status(const void* a, const void* b, void* y, std::byte* scratch)> run;
};

// y[batch, m, n] = alpha a b (+ y). Steps in elements: batch, row, column. No extent is 0.
struct MatmulProblem {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t a[3], b[3], y[3];
  float alpha = 1;
  bool accumulate = false;
  Math math = Math::kStrict;
  int threads = 1;
};
absl::StatusOr<Primitive> MakeMatmul(const MatmulProblem& problem);

enum class Direction { kForward, kInputGradient, kWeightGradient };

// forward: (x, w) -> y; input gradient: (y, w) -> x; weight gradient: (x, y) -> w. Views of any
// strides; w is [c_out, c / groups, ...kernel].
struct ConvolutionProblem {
  Direction direction = Direction::kForward;
  TensorType x, w, y;
  Extents stride, padding, dilation;
  int64_t groups = 1;
  Math math = Math::kStrict;
  int threads = 1;
};
absl::StatusOr<Primitive> MakeConvolution(const ConvolutionProblem& problem);

// Whether the library honours a request for bf16 inside f32 primitives: one product of known bits
// is run both ways, once in the process.
bool FastBf16IsHonoured();

// Asks for a number of threads while it lives, on the calling thread alone.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_;
};

}  // namespace backendd::worker::onednn

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_ONEDNN_H_
