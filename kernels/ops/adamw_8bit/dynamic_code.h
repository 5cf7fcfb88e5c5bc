#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace hbmtune::ops {

// The dynamic tree code of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022,
// section 1.3): after the sign bit k ≤ 6 zero bits stand for a factor 10^-k, a one bit ends them,
// and the bits left divide [0.1, 1] linearly, values being the middles; without a sign its bit is
// one more for the linear part. 256 values, sorted, among them 0 and 1 exactly.
class DynamicCode {
 public:
  explicit DynamicCode(bool is_signed);

  // values[i] = code value · scale
  void Decode(const uint8_t* codes, float scale, float* values, int64_t n) const;
  // Nearest codes after division by the largest magnitude, which is returned (0 if all are 0).
  float Encode(const float* values, uint8_t* codes, int64_t n) const;

  const std::array<float, 256>& values() const { return values_; }

  // The nearest code to x, |x| ≤ 1.
  uint8_t Nearest(float x) const {
    uint32_t code = start_[Bin(x)];
    for (int i = 0; i < kSteps; ++i) code += x > upper_[code];
    return static_cast<uint8_t>(code);
  }

 private:
  static uint32_t Bin(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    constexpr uint32_t kLeast = (127 - 21) << 6;
    const uint32_t magnitude = (bits & 0x7fffffffu) >> 17;
    return (magnitude > kLeast ? magnitude - kLeast : 0) + (bits >> 31) * kBins;
  }

  std::array<float, 256> values_;
  std::array<float, 256> upper_;  // upper_[i]: middle of values i and i + 1; the last is infinite
  // Where the search for a number begins: by its sign, its exponent from 2^-21 on, and 6 bits of
  // its mantissa. From there the nearest code is at most kSteps further (a test counts).
  static constexpr int kBins = 21 * 64 + 1;
  static constexpr int kSteps = 3;
  std::array<uint8_t, 2 * kBins> start_;
};

const DynamicCode& SignedCode();
const DynamicCode& UnsignedCode();

}  // namespace hbmtune::ops
