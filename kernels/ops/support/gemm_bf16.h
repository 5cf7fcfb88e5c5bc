#pragma once

#include "kernels/ops/support/gemm.h"

namespace hbmtune::ops {

// Whether a and b are bf16, c is bf16 or fp32, alpha is not 0, and the processor multiplies bf16
// itself (Zen 4, Cooper Lake and later): twice the rate of fp32. Elsewhere widening to fp32 first
// is faster.
bool MultipliesBf16(const Product& product);

// The product by the calling thread alone, through oneDNN's matmul; sums in fp32.
void MultiplyBf16(const Product& product);

}  // namespace hbmtune::ops
