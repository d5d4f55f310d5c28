// 16-bit and 8-bit floats: storage, widened exactly, rounded once (to nearest, ties to even) from
// double.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_NARROW_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_NARROW_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace backendd::worker {

// `kExponent` and `kFraction` bits beside the sign. Without infinities (kInfinite false) the
// highest code is NaN, all others of the highest exponent are numbers.
template <class Word, int kExponent, int kFraction, bool kInfinite>
struct Narrow {
  Word bits = 0;

  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kTop = (1 << kExponent) - 1;

  float ToFloat() const {
    const int exponent = bits >> kFraction & kTop;
    const int fraction = bits & ((1 << kFraction) - 1);
    const float sign = bits >> (kExponent + kFraction) & 1 ? -1.0f : 1.0f;
    if (kInfinite && exponent == kTop) {
      return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                           : sign * std::numeric_limits<float>::infinity();
    }
    if (!kInfinite && exponent == kTop && fraction == (1 << kFraction) - 1) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    if (exponent == 0) return sign * std::ldexp(float(fraction), 1 - kBias - kFraction);
    return sign * std::ldexp(float(fraction + (1 << kFraction)), exponent - kBias - kFraction);
  }

  static Narrow FromDouble(double value) {
    const Word sign = std::signbit(value) ? Word(1) << (kExponent + kFraction) : 0;
    const Word nan = kInfinite ? (kTop << kFraction) | (1 << (kFraction - 1))
                               : (kTop << kFraction) | ((1 << kFraction) - 1);
    const Word infinity = kInfinite ? kTop << kFraction : nan;
    if (std::isnan(value)) return {nan};
    const double magnitude = std::fabs(value);
    if (std::isinf(value)) return {Word(sign | infinity)};
    if (magnitude == 0) return {sign};
    int exponent = std::ilogb(magnitude);
    if (exponent < 1 - kBias) exponent = 1 - kBias;
    // In units of the last place; the current rounding mode is to nearest, ties to even.
    const double units = std::nearbyint(std::ldexp(magnitude, kFraction - exponent));
    int64_t code = (int64_t(exponent + kBias - 1) << kFraction) + int64_t(units);
    const int64_t highest = kInfinite ? (int64_t(kTop) << kFraction) - 1 : int64_t(nan) - 1;
    if (code > highest) return {Word(sign | infinity)};
    return {Word(sign | Word(code))};
  }
};

using Half = Narrow<uint16_t, 5, 10, true>;
using Bfloat16 = Narrow<uint16_t, 8, 7, true>;
using F8E4M3 = Narrow<uint8_t, 4, 3, false>;
using F8E5M2 = Narrow<uint8_t, 5, 2, true>;

template <class T>
inline constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16> ||
                                  std::is_same_v<T, F8E4M3> || std::is_same_v<T, F8E5M2>;

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_NARROW_H_
