#include "kernels/ops/adamw_8bit/dynamic_code.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ops/support/vectorize.h"

namespace hbmtune::ops {
namespace {

// Positive values: for k zeros before the one bit, the middles of 2^(6 − k) parts of [0.1, 1],
// twice as many without a sign, times 10^-k.
std::vector<double> PositiveValues(bool is_signed) {
  std::vector<double> values;
  for (int zeros = 0; zeros < 7; ++zeros) {
    const int steps = (is_signed ? 64 : 128) >> zeros;
    for (int i = 0; i < steps; ++i) {
      const double middle = 0.1 + 0.9 * (i + 0.5) / steps;
      values.push_back(middle * std::pow(10.0, -zeros));
    }
  }
  return values;
}

HBMTUNE_VECTOR_CLONES float LargestMagnitude(const float* values, int64_t n) {
  float largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

}  // namespace

DynamicCode::DynamicCode(bool is_signed) {
  std::vector<double> values = {0.0, 1.0};
  for (double value : PositiveValues(is_signed)) {
    values.push_back(value);
    if (is_signed) values.push_back(-value);
  }
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i < 256; ++i) values_[i] = static_cast<float>(values[i]);
  for (size_t i = 0; i < 255; ++i) upper_[i] = (values_[i] + values_[i + 1]) / 2;
  upper_[255] = std::numeric_limits<float>::infinity();
  for (uint32_t bin = 0; bin < 2 * kBins; ++bin) {
    // The least number of the bin: its magnitude's least if positive, its greatest if negative.
    const bool negative = bin >= kBins;
    const uint32_t magnitude = bin % kBins + ((127 - 21) << 6);
    const float least = negative ? -std::bit_cast<float>(((magnitude + 1) << 17) - 1)
                                 : bin == 0 ? 0.0f : std::bit_cast<float>(magnitude << 17);
    const auto border = std::lower_bound(upper_.begin(), upper_.end(), least);
    start_[bin] = static_cast<uint8_t>(border - upper_.begin());
  }
}

void DynamicCode::Decode(const uint8_t* codes, float scale, float* values, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) values[i] = values_[codes[i]] * scale;
}

float DynamicCode::Encode(const float* values, uint8_t* codes, int64_t n) const {
  const float largest = LargestMagnitude(values, n);
  const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
  for (int64_t i = 0; i < n; ++i) codes[i] = Nearest(std::min(values[i] * inverse, 1.0f));
  return largest;
}

const DynamicCode& SignedCode() {
  static const DynamicCode code(true);
  return code;
}
const DynamicCode& UnsignedCode() {
  static const DynamicCode code(false);
  return code;
}

}  // namespace hbmtune::ops
