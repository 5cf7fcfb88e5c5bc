#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/core/dtype.h"
#include "kernels/core/shape.h"
#include "kernels/program/op_kind.h"

namespace hbmtune::testing {

// A tensor that owns its memory, with views; copies share nothing.
class HostTensor {
 public:
  HostTensor() = default;
  // Floating tensors start as NaN, so that what an op forgets to write is seen.
  HostTensor(Dtype dtype, Dims shape);
  static HostTensor Of(Dtype dtype, Dims shape, const std::vector<double>& values);
  static HostTensor Ints(Dims shape, const std::vector<int64_t>& values);
  // Seeded normal numbers, rounded to the dtype.
  static HostTensor Random(Dtype dtype, Dims shape, uint64_t seed, double scale = 1);
  static HostTensor Zeros(Dtype dtype, Dims shape);

  TensorArg arg() const;
  // A view: strides in elements over the same memory.
  TensorArg View(Dims shape, Dims strides, int64_t offset = 0) const;
  const Dims& shape() const { return shape_; }
  Dtype dtype() const { return dtype_; }
  int64_t elements() const { return ElementCount(shape_); }

  std::vector<double> Values() const;
  double At(int64_t i) const;
  void Set(int64_t i, double value);
  // The same numbers in another dtype (integers stay what they are).
  HostTensor As(Dtype dtype) const;
  bool BitwiseEqual(const HostTensor& other) const { return bytes_ == other.bytes_; }

 private:
  Dtype dtype_ = Dtype::kF32;
  Dims shape_;
  std::vector<char> bytes_;
};

// Checks and runs an op.
void RunOp(const OpKind& op, const std::vector<TensorArg>& in, const std::vector<TensorArg>& out,
           const Attrs& attrs = {});
// What check() says about the arguments; empty if it accepts them.
std::string Complaint(const OpKind& op, const std::vector<TensorArg>& in,
                      const std::vector<TensorArg>& out, const Attrs& attrs = {});

// Unit roundoff: half the distance from 1 to the next number.
double Roundoff(Dtype dtype);

// ‖a − b‖ / ‖b‖; 0 if both are 0.
double RelativeError(const std::vector<double>& a, const std::vector<double>& b);

// Fails with the worst element if ‖actual − expected‖ > tolerance · ‖expected‖.
::testing::AssertionResult Close(const std::vector<double>& actual,
                                 const std::vector<double>& expected, double tolerance);

// The gradient of f at x by central differences.
std::vector<double> FiniteDifference(const std::function<double()>& f, HostTensor& x,
                                     double step = 1e-5);

// Σ y · w
double Dot(const HostTensor& y, const HostTensor& w);

// Sets OpenMP's threads while it lives.
class Threads {
 public:
  explicit Threads(int count);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace hbmtune::testing
