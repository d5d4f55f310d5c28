// Products of 8-bit codes, widened to 16 bits: no instruction that multiplies pairs saturates, so
// sums are exact on every CPU.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_DOT_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_DOT_H_

#include <algorithm>
#include <cstdint>

namespace backendd::worker {

// Exact for any length: partial sums of this many products fit 32 bits.
inline constexpr int64_t kDotBlock = 1 << 15;

inline int64_t Dot(const int16_t* x, const int16_t* w, int64_t k) {
  int64_t sum = 0;
  for (int64_t from = 0; from < k; from += kDotBlock) {
    int32_t part = 0;
    const int64_t to = std::min(k, from + kDotBlock);
    for (int64_t i = from; i < to; ++i) part += int32_t{x[i]} * int32_t{w[i]};
    sum += part;
  }
  return sum;
}

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_DOT_H_
