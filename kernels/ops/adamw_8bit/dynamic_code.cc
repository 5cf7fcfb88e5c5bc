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

// Search by halves for the number of borders below each value. The halving is the outer loop: so
// the inner one is a gather, and vectorises.
HBMTUNE_VECTOR_CLONES void Search(const float* upper, const float* values, float inverse,
                                  int32_t* codes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) codes[i] = 0;
  for (int32_t step = 128; step > 0; step /= 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      codes[i] += values[i] * inverse > upper[codes[i] + step - 1] ? step : 0;
    }
  }
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
}

void DynamicCode::Decode(const uint8_t* codes, float scale, float* values, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) values[i] = values_[codes[i]] * scale;
}

float DynamicCode::Encode(const float* values, uint8_t* codes, int64_t n) const {
  const float largest = LargestMagnitude(values, n);
  const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
  constexpr int64_t kBlock = 256;
  int32_t found[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    Search(upper_.data(), values + begin, inverse, found, count);
    for (int64_t i = 0; i < count; ++i) codes[begin + i] = static_cast<uint8_t>(found[i]);
  }
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
