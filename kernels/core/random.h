#pragma once

#include <cstdint>

namespace hbmtune {

// SplitMix64's finaliser: a good 64-bit hash of a counter (Steele, Lea, Flood 2014).
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace hbmtune
