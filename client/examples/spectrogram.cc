// Draws spectra of real series through the FFT plan cache: the spectrogram of speech, the
// periodogram of the yearly sunspots. Window, transform, power and logarithm are backendd programs;
// frames are a strided view of the samples.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backendd/client.h"
#include "client/examples/arguments.h"
#include "client/examples/picture.h"
#include "shared/status/macros.h"

namespace backendd::examples {
namespace {

constexpr int kRate = 16000, kWindow = 512, kHop = 160, kBins = kWindow / 2 + 1;
constexpr int kFrames = 69;  // of one block
constexpr int kBlock = (kFrames - 1) * kHop + kWindow;
constexpr double kPi = 3.14159265358979323846;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// |X|^2 of a complex tensor: its real view squared, summed over the two parts.
Tensor Power(Program& program, const Tensor& spectrum) {
  Tensor parts = spectrum;
  Extents shape = spectrum.type.shape;
  shape.push_back(2);
  parts.type = RowMajor(DType::kF32, shape);
  v1::Reduction sum;
  sum.add_dim(-1);
  return program.Reduction(program.Unary(parts, v1::UNARY_FUNCTION_SQUARE), v1::REDUCTION_KIND_SUM,
                           sum);
}

absl::Status Spectrogram(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string raw, ReadFile(arguments.data + "/goforward.raw"));
  const auto sample = [&raw](int i) {  // s16le
    return static_cast<int16_t>(static_cast<uint8_t>(raw[2 * i]) |
                                static_cast<uint8_t>(raw[2 * i + 1]) << 8);
  };
  const int samples = static_cast<int>(raw.size() / 2);
  const int blocks = ((samples - kWindow) / kHop + 1) / kFrames;
  if (blocks < 1) return absl::DataLossError("the speech is too short");

  ASSIGN_OR_RETURN(Buffer input, session.AllocateArena("cpu", kBlock * sizeof(float)));
  ASSIGN_OR_RETURN(Buffer window, session.AllocateArena("cpu", (kWindow + 64) * sizeof(float)));
  ASSIGN_OR_RETURN(Buffer output, session.AllocateArena("cpu", kFrames * kBins * sizeof(float)));
  for (int i = 0; i < kWindow; ++i)
    window.as<float>()[i] = static_cast<float>(0.5 - 0.5 * std::cos(2 * kPi * i / kWindow));
  const uint64_t after = kWindow * sizeof(float);
  window.as<float>()[kWindow] = 1;  // keeps the logarithm of silence finite

  Program program = session.NewProgram("cpu");
  Tensor frames = input.View(DType::kF32, {kBlock});
  frames.type.shape = {kFrames, kWindow};
  frames.type.strides = {kHop, 1};
  const Tensor windowed =
      program.Binary(frames, window.View(DType::kF32, {kWindow}), v1::BINARY_FUNCTION_MUL);
  const Tensor power = Power(program, program.Fft(windowed, v1::FFT_KIND_R2C));
  const Tensor loud =
      program.Binary(power, window.View(DType::kF32, {1}, after), v1::BINARY_FUNCTION_ADD);
  v1::Unary into;
  *into.mutable_y() = output.View(DType::kF32, {kFrames, kBins}).operand();
  program.Unary(loud, v1::UNARY_FUNCTION_LOG, into);

  std::vector<float> levels;
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < kBlock; ++i) input.as<float>()[i] = sample(block * kFrames * kHop + i);
    ASSIGN_OR_RETURN(const Result result, program.Submit());
    RETURN_IF_ERROR(result.status());
    levels.insert(levels.end(), output.as<float>().begin(), output.as<float>().end());
    if (block + 1 == blocks) Say("stamp " + result.stamp());
  }

  const int count = blocks * kFrames, left = 60, top = 10, wide = 3 * count, high = 2 * kBins;
  Picture picture(left + wide + 40, top + high + 30);
  const float most = *std::max_element(levels.begin(), levels.end());
  for (int x = 0; x < wide; ++x)
    for (int y = 0; y < high; ++y)  // the upper 70 dB
      picture.Dot(left + x, top + high - 1 - y,
                  Heat(1 + (levels[x / 3 * kBins + y / 2] - most) / 16));
  picture.Axes(left, top, wide, high, 4, count * double{kHop} / kRate, kRate / 2000.0, "s", "kHz");
  const std::string path = arguments.out + "/spectrogram.png";
  RETURN_IF_ERROR(picture.Write(path));
  Say("drew %s: %d frames of %d samples in %d programs", path.c_str(), count, kWindow, blocks);
  return absl::OkStatus();
}

absl::Status Periodogram(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(arguments.data + "/sunspots.csv"));
  std::vector<float> values;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    float value;
    if (cells.size() == 2 && absl::SimpleAtof(cells[1], &value)) values.push_back(value);
  }
  const int count = static_cast<int>(values.size()), bins = count / 2 + 1;
  if (count < 3) return absl::DataLossError("no sunspots to read");
  ASSIGN_OR_RETURN(Buffer input, session.AllocateArena("cpu", count * sizeof(float)));
  std::copy(values.begin(), values.end(), input.as<float>().begin());

  Program program = session.NewProgram("cpu");
  const Tensor series = input.View(DType::kF32, {count});
  const Tensor mean = program.Reduction(series, v1::REDUCTION_KIND_MEAN);
  const Tensor power =
      Power(program,
            program.Fft(program.Binary(series, mean, v1::BINARY_FUNCTION_SUB), v1::FFT_KIND_R2C));
  program.Read(program.Reduction(power, v1::REDUCTION_KIND_ARGMAX));
  program.Read(power);
  ASSIGN_OR_RETURN(const Result result, program.Submit());
  RETURN_IF_ERROR(result.status());
  const std::vector<int64_t> peak = result.Read<int64_t>(0);
  const std::vector<float> powers = result.Read<float>(1);
  if (peak.size() != 1 || static_cast<int>(powers.size()) != bins || peak[0] < 1 || peak[0] >= bins)
    return absl::InternalError("the periodogram has no peak");

  const int left = 60, top = 10, wide = 4 * bins, high = 240;
  Picture picture(left + wide + 60, top + high + 30);
  const auto height = [&](int bin) {
    return top + high - 1 - static_cast<int>(powers[bin] / powers[peak[0]] * (high - 1));
  };
  for (int bin = 1; bin < bins; ++bin)
    picture.Line(left + 4 * (bin - 1), height(bin - 1), left + 4 * bin, height(bin), {188, 55, 84});
  picture.Axes(left, top, wide, high, 4, 0.5, 100, "/yr", "%");
  const std::string path = arguments.out + "/sunspots.png";
  RETURN_IF_ERROR(picture.Write(path));
  Say("drew %s: %d years, peak at bin %d, a period of %.2f years", path.c_str(), count,
      static_cast<int>(peak[0]), count / static_cast<double>(peak[0]));
  return absl::OkStatus();
}

absl::Status Draw(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, Client::Create({.address = arguments.socket}));
  SessionOptions options;
  options.name = "spectrogram";
  ASSIGN_OR_RETURN(const auto session, client->OpenSession(std::move(options)));
  RETURN_IF_ERROR(session->WaitServing("cpu", absl::Seconds(30)));
  RETURN_IF_ERROR(Spectrogram(*session, arguments));
  RETURN_IF_ERROR(Periodogram(*session, arguments));
  ASSIGN_OR_RETURN(const auto caches, session->PlanCaches("cpu", "fft"));
  for (const v1::PlanCache& cache : caches)
    Say(absl::StrCat("plan cache ", cache.kind(), ": ", cache.size(), " of ", cache.max_size(),
                     " plans, ", cache.hits(), " hits, ", cache.misses(), " misses, ",
                     cache.bytes(), " bytes"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace backendd::examples

int main(int argc, char** argv) {
  using namespace backendd::examples;
  return Exit(Draw(ReadArguments(argc, argv)));
}
