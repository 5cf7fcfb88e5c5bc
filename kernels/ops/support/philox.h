#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {

// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
// four random words out of a counter and a key, without state.
HBMTUNE_INLINE std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter,
                                              std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The dropout of one site: which elements are kept, and what they are multiplied by.
struct DropoutMask {
  uint64_t seed = 0;
  uint64_t draw = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;  // an element is dropped if its word is below
  double scale = 1;

  // `key` is the tensor's data: seed, draw.
  static DropoutMask Of(const int64_t* key, int64_t site, double probability) {
    return {static_cast<uint64_t>(key[0]), static_cast<uint64_t>(key[1]),
            static_cast<uint32_t>(site),
            static_cast<uint32_t>(probability * 4294967296.0), 1.0 / (1.0 - probability)};
  }

  // The words of elements 4·group … 4·group + 3.
  HBMTUNE_INLINE std::array<uint32_t, 4> Words(uint64_t group) const {
    return Philox({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), site,
                   static_cast<uint32_t>(draw)},
                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  bool Keeps(uint64_t element) const { return Words(element / 4)[element % 4] >= threshold; }
};

// multipliers[i] = 0 or scale, for elements first … first + n − 1.
template <class C>
void FillDropoutMultipliers(const DropoutMask& mask, uint64_t first, C* multipliers, int64_t n);

}  // namespace hbmtune::ops
