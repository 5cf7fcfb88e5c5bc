#pragma once

#include <cstdint>

#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {

// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
// four random words out of a counter and a key, without state.
struct PhiloxWords {
  uint32_t a, b, c, d;
};
HBMTUNE_INLINE PhiloxWords Philox(PhiloxWords x, uint32_t key_low, uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * x.a;
    const uint64_t second = uint64_t{0xCD9E8D57u} * x.c;
    x = {static_cast<uint32_t>(second >> 32) ^ x.b ^ key_low, static_cast<uint32_t>(second),
         static_cast<uint32_t>(first >> 32) ^ x.d ^ key_high, static_cast<uint32_t>(first)};
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return x;
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
  HBMTUNE_INLINE PhiloxWords Words(uint64_t group) const {
    return Philox({static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), site,
                   static_cast<uint32_t>(draw)},
                  static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }
};

// multipliers[i] = 0 or scale, for elements first … first + n − 1.
template <class C>
void FillDropoutMultipliers(const DropoutMask& mask, uint64_t first, C* multipliers, int64_t n);

}  // namespace hbmtune::ops
