#pragma once

#include <cstdint>

// Loops over one row that several rooms share. fp32 and fp64; y may be an input.
namespace hbmtune::ops {

// y += x
void AddTo(float* y, const float* x, int64_t n);
void AddTo(double* y, const double* x, int64_t n);
// y += factor · x
void AddScaledTo(float* y, float factor, const float* x, int64_t n);
void AddScaledTo(double* y, double factor, const double* x, int64_t n);
// y = factor · x
void ScaleRow(const float* x, float factor, float* y, int64_t n);
void ScaleRow(const double* x, double factor, double* y, int64_t n);
// y += constant
void AddConstant(float* y, float constant, int64_t n);
void AddConstant(double* y, double constant, int64_t n);
// y = a · b, element by element
void MultiplyRow(const float* a, const float* b, float* y, int64_t n);
void MultiplyRow(const double* a, const double* b, double* y, int64_t n);
// Σ x, Σ a · b. The order of the sum is fixed by n alone.
float SumRow(const float* x, int64_t n);
double SumRow(const double* x, int64_t n);
float DotRow(const float* a, const float* b, int64_t n);
double DotRow(const double* a, const double* b, int64_t n);
// Largest element (−infinity for n = 0; NaN elements may be passed over).
float MaxRow(const float* x, int64_t n);
double MaxRow(const double* x, int64_t n);
// y = e^(scale · x − shift); returns Σ y.
float ExpRow(const float* x, float scale, float shift, float* y, int64_t n);
double ExpRow(const double* x, double scale, double shift, double* y, int64_t n);

}  // namespace hbmtune::ops
