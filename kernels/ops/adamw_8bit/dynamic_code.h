#pragma once

#include <array>
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

 private:
  std::array<float, 256> values_;
  std::array<float, 256> upper_;  // upper_[i]: middle of values i and i + 1; the last is unused
};

const DynamicCode& SignedCode();
const DynamicCode& UnsignedCode();

}  // namespace hbmtune::ops
