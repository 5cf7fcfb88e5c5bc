#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// bf16 and fp16 as storage: arithmetic happens after widening to fp32. Written without branches
// and table look-ups, so that loops over them vectorise on any instruction set.
namespace hbmtune {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

inline float Widen(Bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Rounds to nearest even; a NaN stays a (quiet) NaN.
inline Bf16 NarrowToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return Bf16{static_cast<uint16_t>(is_nan ? nan : rounded)};
}

// The exponent is shifted into place and corrected by a multiplication with 2^112, which also
// normalises denormals; infinities and NaNs get fp32's exponent.
inline float Widen(F16 x) {
  const uint32_t magnitude = (uint32_t{x.bits} & 0x7fffu) << 13;
  const uint32_t sign = (uint32_t{x.bits} & 0x8000u) << 16;
  const uint32_t finite =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const bool special = magnitude >= 0x0f800000u;
  return std::bit_cast<float>((special ? magnitude | 0x7f800000u : finite) | sign);
}

// Rounds to nearest even; over 65504 (after rounding) becomes infinity; a NaN stays a NaN.
inline F16 NarrowToF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  // Normal: drop 13 bits of the mantissa, rounding; rebias the exponent by 127 − 15.
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Denormal: adding 0.5 makes the sum's last bit worth 2^-24, so the hardware does the rounding.
  const uint32_t denormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? denormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and above
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return F16{static_cast<uint16_t>(half | sign)};
}

}  // namespace hbmtune
