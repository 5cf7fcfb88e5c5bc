#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/ops/support/vectorize.h"

// Functions that vectorise inside `#pragma omp simd` loops: fp32 by polynomials without branches,
// fp64 through <cmath> (references only).
namespace hbmtune::ops {

// e^x to 2 ulp for |x| < 86; 0 under −86, infinity over 88.72, NaN for NaN. x is split into
// n·ln 2 + r with |r| ≤ ln 2 / 2 (ln 2 in two parts, so that r is exact), and e^r is a
// polynomial (coefficients of Cephes' expf).
HBMTUNE_INLINE float Exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
  const float clamped = x < -86.0f ? -86.0f : (x > 89.0f ? 89.0f : x);
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  float r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4b400000;
  // 2^n as 2 · 2^(n−1): n reaches 128.
  const float power = std::bit_cast<float>((exponent + 126) << 23);
  const float y = p * power * 2.0f;
  return x < -86.0f ? 0.0f : (x > 88.72283f ? HUGE_VALF : y);
}
HBMTUNE_INLINE double Exp(double x) { return std::exp(x); }

template <class C>
HBMTUNE_INLINE C Sigmoid(C x) {
  return C(1) / (C(1) + Exp(-x));
}

// tanh to 2e-7 absolute (fp32).
HBMTUNE_INLINE float Tanh(float x) { return 1.0f - 2.0f / (1.0f + Exp(2.0f * x)); }
HBMTUNE_INLINE double Tanh(double x) { return std::tanh(x); }

// erf to 5e-7 absolute (fp32): 1 − t·P(t)·e^(−x²), t = 1/(1 + 0.3275911·|x|), the form of
// Abramowitz and Stegun 7.1.26.
HBMTUNE_INLINE float Erf(float x) {
  const float magnitude = x < 0 ? -x : x;
  const float t = 1.0f / (1.0f + 0.3275911f * magnitude);
  float p = 1.061405429f;
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const float y = 1.0f - p * t * Exp(-magnitude * magnitude);
  return x < 0 ? -y : y;
}
HBMTUNE_INLINE double Erf(double x) { return std::erf(x); }

}  // namespace hbmtune::ops
