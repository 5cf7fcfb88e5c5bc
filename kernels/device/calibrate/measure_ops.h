#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/device/profile.h"

// Calls of single ops of the stack on the CPU, over buffers of their own.
namespace hbmtune::device {

// The product y[m, n] = x[m, k] · w[n, k]ᵀ, and the two of its backward pass.
std::vector<OpPoint> MeasureProducts(Dtype dtype, int64_t m, int64_t n, int64_t k);

// Causal attention of both kinds, forward and backward, [batch, tokens, heads, width].
std::vector<OpPoint> MeasureAttention(Dtype dtype, int64_t batch, int64_t tokens, int64_t heads,
                                      int64_t width);

// A model's memory-bound ops (norms, gates, positions, residual, casts, loss; forward and
// backward) on `rows` rows of `width`, a multiple of 32.
std::vector<OpPoint> MeasureRows(Dtype dtype, int64_t rows, int64_t width);

// What is done once a step to so many parameters of that type: optimizers and gradient norms.
std::vector<OpPoint> MeasureUpdate(Dtype dtype, int64_t parameters);

// Triad over buffers far larger than the caches: bytes a second.
double MeasureBandwidth();

// Least time of an op: one of a handful of elements.
double MeasureLeastOp();

}  // namespace hbmtune::device
