// Philox 4x32-10: the same bits on every device. Block `offset + i / 4` of the seed gives draws i.
#ifndef BACKENDD_SERVER_WORKER_DEVICE_CPU_PHILOX_H_
#define BACKENDD_SERVER_WORKER_DEVICE_CPU_PHILOX_H_

#include <array>
#include <cstdint>

namespace backendd::worker {

inline std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t block) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0,
                               0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

class PhiloxStream {
 public:
  PhiloxStream(uint64_t seed, uint64_t offset) : seed_(seed), block_(offset) {}

  // In [0, 1), a multiple of 2^-24: exact in f32.
  double Uniform() {
    if (at_ == 4) {
      words_ = Philox(seed_, block_++);
      at_ = 0;
    }
    return (words_[at_++] >> 8) * 0x1p-24;
  }

 private:
  const uint64_t seed_;
  uint64_t block_;
  int at_ = 4;
  std::array<uint32_t, 4> words_{};
};

}  // namespace backendd::worker

#endif  // BACKENDD_SERVER_WORKER_DEVICE_CPU_PHILOX_H_
