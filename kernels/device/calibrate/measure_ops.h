#pragma once

#include <cstdint>

#include "kernels/core/dtype.h"

// Rates of single ops of the stack on the CPU, over buffers of their own.
namespace hbmtune::device {

// Products y[m, n] = x[m, k] · w[n, k]ᵀ, and the two of its backward pass; flops a second of the
// three together.
double MeasureProduct(Dtype dtype, int64_t m, int64_t n, int64_t k);

// Causal attention forward and backward, [batch, tokens, heads, width]; flops a second as its cost
// counts them.
double MeasureAttention(Dtype dtype, int64_t batch, int64_t tokens, int64_t heads, int64_t width);

// What a model's memory-bound ops (norm, gate, residual, loss; forward and backward) reach on
// `rows` rows of `width`: bytes a second as their costs count them.
double MeasureStreams(Dtype dtype, int64_t rows, int64_t width);

// AdamW: bytes a second as its cost counts them, and parameters a second.
struct OptimizerRate {
  double bytes_per_second = 0;
  double parameters_per_second = 0;
};
OptimizerRate MeasureAdamw(int64_t parameters);

// Triad over buffers far larger than the caches: bytes a second.
double MeasureBandwidth();

// Least time of an op: one of a handful of elements.
double MeasureLeastOp();

}  // namespace hbmtune::device
