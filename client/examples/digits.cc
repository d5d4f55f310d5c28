// Trains a classifier of handwritten digits: two convolutions and a linear layer, SGD with
// momentum. The host only lays out data (each batch shifted by at most a pixel); all arithmetic is
// backendd programs, the training step one that the worker keeps.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "backendd/client.h"
#include "client/examples/arguments.h"
#include "shared/status/macros.h"

namespace backendd::examples {
namespace {

constexpr int kSide = 8, kPixels = kSide * kSide, kClasses = 10, kWidth = 16;
constexpr int kTrain = 1200, kBatch = 48, kEpochs = 30;
constexpr int kFeatures = kWidth * kPixels;
constexpr double kRate = 0.05, kMomentum = 0.9, kWanted = 95.0;

struct Digit {
  float pixels[kPixels];  // 0 to 1
  int64_t label;
};

absl::StatusOr<std::vector<Digit>> ReadDigits(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::string text(1 << 20, '\0');
  text.resize(std::max(gzread(file, text.data(), text.size()), 0));
  gzclose(file);
  std::vector<Digit> digits;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    Digit digit;
    if (cells.size() != kPixels + 1 || !absl::SimpleAtoi(cells[kPixels], &digit.label))
      return absl::DataLossError(absl::StrCat(path, " has a row that is no digit"));
    for (int i = 0; i < kPixels; ++i) {
      if (!absl::SimpleAtof(cells[i], &digit.pixels[i]))
        return absl::DataLossError(absl::StrCat(path, " has a pixel that is no number"));
      digit.pixels[i] /= 16;
    }
    digits.push_back(digit);
  }
  if (digits.size() <= kTrain) return absl::DataLossError(absl::StrCat(path, " has too few rows"));
  return digits;
}

// The picture moved by dx, dy; what comes in is empty.
void Shift(const Digit& digit, int dx, int dy, float* out) {
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const int from_x = x - dx, from_y = y - dy;
      const bool inside = from_x >= 0 && from_x < kSide && from_y >= 0 && from_y < kSide;
      *out++ = inside ? digit.pixels[from_y * kSide + from_x] : 0;
    }
  }
}

// Parameters and their momentum, in one arena: the host writes the first values, programs the rest.
struct Network {
  Tensor w1, b1, w2, b2, w3, b3;
  std::vector<Tensor> momentum;
  std::vector<Tensor> parameters() const { return {w1, b1, w2, b2, w3, b3}; }
};

struct Layers {
  Tensor z1, a1, z2, a2, flat, logits;
};

Layers Forward(Program& program, const Network& net, const Tensor& x) {
  const auto convolve = [&](const Tensor& in, const Tensor& w, const Tensor& bias) {
    v1::ConvolutionForward op;
    *op.mutable_bias() = bias.operand();
    op.add_padding(1);
    op.add_padding(1);
    return program.ConvolutionForward(in, w, op);
  };
  Layers layer;
  layer.z1 = convolve(x, net.w1, net.b1);
  layer.a1 = program.Activation(layer.z1, v1::ACTIVATION_FUNCTION_RELU);
  layer.z2 = convolve(layer.a1, net.w2, net.b2);
  layer.a2 = program.Activation(layer.z2, v1::ACTIVATION_FUNCTION_RELU);
  layer.flat = layer.a2.Reshape({x.type.shape[0], kFeatures});
  v1::Gemm op;
  *op.mutable_bias() = net.b3.operand();
  layer.logits = program.Gemm(layer.flat, net.w3, op);
  return layer;
}

// One step: forward, loss, backward, SGD. Reads: the loss.
void Step(Program& program, const Network& net, const Tensor& x, const Tensor& target,
          const Tensor& one, const Tensor& rate) {
  const Layers layer = Forward(program, net, x);
  program.Read(program.CrossEntropy(layer.logits, target));
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : net.parameters())
    gradients.push_back(program.Allocate(DType::kF32, parameter.type.shape));

  const Tensor dlogits = program.CrossEntropyGradient(layer.logits, target, one);
  v1::Gemm weights;
  weights.set_trans_a(v1::TRANSPOSE_T);
  *weights.mutable_y() = gradients[4].operand();
  program.Gemm(layer.flat, dlogits, weights);
  v1::Reduction bias;
  bias.add_dim(0);
  *bias.mutable_y() = gradients[5].operand();
  program.Reduction(dlogits, v1::REDUCTION_KIND_SUM, bias);
  v1::Gemm inputs;
  inputs.set_trans_b(v1::TRANSPOSE_T);
  const Tensor da2 = program.Gemm(dlogits, net.w3, inputs).Reshape(layer.a2.type.shape);

  const auto padded = [](auto op) {
    op.add_padding(1);
    op.add_padding(1);
    return op;
  };
  const auto weight_gradient = [&](const Tensor& in, const Tensor& dy, int place) {
    auto op = padded(v1::ConvolutionWeightGradient());
    *op.mutable_dbias() = gradients[place + 1].operand();
    program.ConvolutionWeightGradient(in, dy, gradients[place], op);
  };
  const Tensor dz2 = program.ActivationGradient(layer.z2, da2, v1::ACTIVATION_FUNCTION_RELU);
  weight_gradient(layer.a1, dz2, 2);
  const Tensor da1 = program.Allocate(DType::kF32, layer.a1.type.shape);
  program.ConvolutionInputGradient(dz2, net.w2, da1, padded(v1::ConvolutionInputGradient()));
  const Tensor dz1 = program.ActivationGradient(layer.z1, da1, v1::ACTIVATION_FUNCTION_RELU);
  weight_gradient(x, dz1, 0);

  const std::vector<Tensor> parameters = net.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    v1::Sgd op;
    op.set_momentum(kMomentum);
    *op.mutable_momentum_buffer() = net.momentum[i].operand();
    program.Sgd(parameters[i], gradients[i], rate, op);
  }
}

// Lays out the parameters in an arena and draws their first values.
absl::StatusOr<Network> Lay(Buffer& arena, std::mt19937& random) {
  uint64_t at = 0;
  const auto place = [&](absl::Span<const int64_t> shape, int fan_in) {
    Tensor tensor = arena.View(DType::kF32, shape, at);
    if (!tensor.valid()) return tensor;
    std::normal_distribution<float> draw(0, fan_in == 0 ? 0 : std::sqrt(2.0f / fan_in));
    auto values = arena.as<float>().subspan(at / sizeof(float), tensor.type.elements());
    for (float& value : values) value = fan_in == 0 ? 0 : draw(random);
    at += (values.size_bytes() + 255) / 256 * 256;
    return tensor;
  };
  Network net{place({kWidth, 1, 3, 3}, 9),
              place({kWidth}, 0),
              place({kWidth, kWidth, 3, 3}, 9 * kWidth),
              place({kWidth}, 0),
              place({kFeatures, kClasses}, kFeatures),
              place({kClasses}, 0),
              {}};
  for (const Tensor& parameter : net.parameters())
    net.momentum.push_back(place(parameter.type.shape, 0));
  if (!net.momentum.back().valid())
    return absl::InternalError("the parameters' arena is too small");
  return net;
}

absl::Status Train(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<Digit> digits, ReadDigits(arguments.data + "/digits.csv.gz"));
  const int held_out = static_cast<int>(digits.size()) - kTrain;
  ASSIGN_OR_RETURN(const auto client, Client::Create({.address = arguments.socket}));
  SessionOptions options;
  options.name = "digits";
  ASSIGN_OR_RETURN(const auto session, client->OpenSession(std::move(options)));
  RETURN_IF_ERROR(session->WaitServing("cpu", absl::Seconds(30)));

  LeaseRequest request;
  request.flags = {{"cudnn.benchmark", true}};
  request.reason = "training digits";
  ASSIGN_OR_RETURN(Lease lease, session->Acquire(request));
  ASSIGN_OR_RETURN(ScopedFlags flags, session->Flags({{"mkldnn.deterministic", true}}));
  Say("holds cudnn.benchmark=true on the node, mkldnn.deterministic=true for itself (lease %08x)",
      static_cast<unsigned>(lease.id() >> 32));

  std::mt19937 random(7);
  ASSIGN_OR_RETURN(Buffer parameters, session->AllocateArena("cpu", 256 << 10));
  ASSIGN_OR_RETURN(const Network net, Lay(parameters, random));
  ASSIGN_OR_RETURN(Buffer pictures, session->AllocateArena("cpu", held_out * kPixels * 4));
  ASSIGN_OR_RETURN(Buffer batches, session->AllocateArena("cpu", kTrain * kPixels * 4));
  ASSIGN_OR_RETURN(Buffer labels, session->AllocateArena("cpu", kTrain * 8));
  ASSIGN_OR_RETURN(Buffer scalars, session->AllocateArena("cpu", 512));
  const Tensor one = scalars.View(DType::kF32, {}), rate = scalars.View(DType::kF32, {1}, 256);
  scalars.as<float>()[0] = 1;
  for (int i = 0; i < held_out; ++i)
    Shift(digits[kTrain + i], 0, 0, pictures.as<float>().data() + i * kPixels);

  // An epoch's batches lie one after the other; the step is built for the first, and bound to each.
  const auto batch = [&](int begin) {
    return batches.View(DType::kF32, {kBatch, 1, kSide, kSide}, begin * kPixels * 4);
  };
  const auto target = [&](int begin) { return labels.View(DType::kS64, {kBatch}, begin * 8); };
  Program step = session->NewProgram("cpu");
  Step(step, net, batch(0), target(0), one, rate);
  RETURN_IF_ERROR(step.Prepare({batch(0), target(0)}));
  Program test = session->NewProgram("cpu");
  v1::Reduction classes;
  classes.add_dim(1);
  test.Read(test.Reduction(
      Forward(test, net, pictures.View(DType::kF32, {held_out, 1, kSide, kSide})).logits,
      v1::REDUCTION_KIND_ARGMAX, classes));
  Say("%d operations a step, %d steps an epoch", step.size(), kTrain / kBatch);

  std::vector<int> order(kTrain);
  std::iota(order.begin(), order.end(), 0);
  std::uniform_int_distribution<int> pixel(-1, 1);
  const int steps = kEpochs * (kTrain / kBatch);
  double right = 0;
  for (int epoch = 0, done = 0; epoch < kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random);
    float loss = 0;
    for (int i = 0, dx = 0, dy = 0; i < kTrain; ++i) {
      if (i % kBatch == 0) dx = pixel(random), dy = pixel(random);
      const Digit& digit = digits[order[i]];
      Shift(digit, dx, dy, batches.as<float>().data() + i * kPixels);
      labels.as<int64_t>()[i] = digit.label;
    }
    for (int begin = 0; begin < kTrain; begin += kBatch, ++done) {
      scalars.as<float>()[64] = kRate * (1 - static_cast<double>(done) / steps);
      SubmitOptions run;
      run.lease = &lease;
      run.bindings = {{batch(0), batch(begin)}, {target(0), target(begin)}};
      const bool last = done + 1 == steps;
      run.stamp_detail = last ? v1::STAMP_DETAIL_FULL : v1::STAMP_DETAIL_NONE;
      ASSIGN_OR_RETURN(const Result result, step.Submit(run));
      RETURN_IF_ERROR(result.status());
      const std::vector<float> losses = result.Read<float>(0);
      if (losses.size() != 1 || !std::isfinite(losses[0]))
        return absl::InternalError("the loss is no number any more");
      loss += losses[0] * kBatch / kTrain;
      if (last) Say("stamp " + result.stamp());
    }
    if ((epoch + 1) % 3 != 0) continue;
    ASSIGN_OR_RETURN(const Result result, test.Submit());
    RETURN_IF_ERROR(result.status());
    const std::vector<int64_t> answers = result.Read<int64_t>(0);
    int good = 0;
    for (int i = 0; i < held_out && i < static_cast<int>(answers.size()); ++i)
      good += answers[i] == digits[kTrain + i].label;
    right = 100.0 * good / held_out;
    Say("epoch %2d/%d  loss %.4f  held-out %.1f %%", epoch + 1, kEpochs, loss, right);
  }
  if (right < kWanted)
    return absl::InternalError(absl::StrFormat(
        "%.1f %% of the held-out digits are right; %.0f %% are wanted", right, kWanted));
  Say("trained: %.1f %% of %d held-out digits are right", right, held_out);
  return absl::OkStatus();
}

}  // namespace
}  // namespace backendd::examples

int main(int argc, char** argv) {
  using namespace backendd::examples;
  return Exit(Train(ReadArguments(argc, argv)));
}
