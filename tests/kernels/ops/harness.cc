#include "tests/kernels/ops/harness.h"

#include <omp.h>

#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>

#include "kernels/ops/support/rows.h"

namespace hbmtune::testing {

HostTensor::HostTensor(Dtype dtype, Dims shape)
    : dtype_(dtype), shape_(shape),
      bytes_(static_cast<size_t>(ElementCount(shape) * SizeOf(dtype)), '\xff') {}

HostTensor HostTensor::Of(Dtype dtype, Dims shape, const std::vector<double>& values) {
  HostTensor tensor(dtype, shape);
  if (static_cast<int64_t>(values.size()) != tensor.elements()) {
    throw std::invalid_argument(std::to_string(values.size()) + " values for " + ToString(shape));
  }
  ops::WriteElements(values.data(), tensor.bytes_.data(), dtype, tensor.elements());
  return tensor;
}

HostTensor HostTensor::Ints(Dims shape, const std::vector<int64_t>& values) {
  HostTensor tensor(Dtype::kI64, shape);
  if (static_cast<int64_t>(values.size()) != tensor.elements()) {
    throw std::invalid_argument(std::to_string(values.size()) + " values for " + ToString(shape));
  }
  std::memcpy(tensor.bytes_.data(), values.data(), tensor.bytes_.size());
  return tensor;
}

HostTensor HostTensor::Random(Dtype dtype, Dims shape, uint64_t seed, double scale) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values(static_cast<size_t>(ElementCount(shape)));
  for (double& value : values) value = normal(generator);
  return Of(dtype, shape, values);
}

HostTensor HostTensor::Zeros(Dtype dtype, Dims shape) {
  HostTensor tensor(dtype, shape);
  std::fill(tensor.bytes_.begin(), tensor.bytes_.end(), '\0');
  return tensor;
}

TensorArg HostTensor::arg() const { return View(shape_, DenseStrides(shape_)); }

TensorArg HostTensor::View(Dims shape, Dims strides, int64_t offset) const {
  char* data = const_cast<char*>(bytes_.data()) + offset * SizeOf(dtype_);
  return {data, dtype_, shape, strides};
}

std::vector<double> HostTensor::Values() const {
  std::vector<double> values(static_cast<size_t>(elements()));
  if (dtype_ <= Dtype::kF64) {
    ops::ReadElements(bytes_.data(), dtype_, values.data(), elements());
    return values;
  }
  for (int64_t i = 0; i < elements(); ++i) values[static_cast<size_t>(i)] = At(i);
  return values;
}

double HostTensor::At(int64_t i) const {
  if (dtype_ == Dtype::kU8) return static_cast<uint8_t>(bytes_[static_cast<size_t>(i)]);
  return ops::LoadScalar(arg(), i);
}

void HostTensor::Set(int64_t i, double value) { ops::StoreScalar(arg(), value, i); }

HostTensor HostTensor::As(Dtype dtype) const {
  if (dtype_ > Dtype::kF64) return *this;
  return Of(dtype, shape_, Values());
}

void RunOp(const OpKind& op, const std::vector<TensorArg>& in, const std::vector<TensorArg>& out,
           const Attrs& attrs) {
  const OpArgs args = {in, out, attrs};
  op.check(args);
  op.host(args);
}

std::string Complaint(const OpKind& op, const std::vector<TensorArg>& in,
                      const std::vector<TensorArg>& out, const Attrs& attrs) {
  try {
    op.check({in, out, attrs});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

double Roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16: return 0x1p-8;
    case Dtype::kF16: return 0x1p-11;
    case Dtype::kF64: return 0x1p-53;
    default: return 0x1p-24;
  }
}

double RelativeError(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

::testing::AssertionResult Close(const std::vector<double>& actual,
                                 const std::vector<double>& expected, double tolerance) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  const double error = RelativeError(actual, expected);
  if (error <= tolerance) return ::testing::AssertionSuccess();
  size_t worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double here = std::fabs(actual[i] - expected[i]);
    if (!(here <= std::fabs(actual[worst] - expected[worst]))) worst = i;
  }
  return ::testing::AssertionFailure()
         << "relative error " << error << " over " << tolerance << "; worst at " << worst << ": "
         << actual[worst] << " for " << expected[worst];
}

std::vector<double> FiniteDifference(const std::function<double()>& f, HostTensor& x,
                                     double step) {
  std::vector<double> gradient(static_cast<size_t>(x.elements()));
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double value = x.At(i);
    x.Set(i, value + step);
    const double above = f();
    x.Set(i, value - step);
    const double below = f();
    x.Set(i, value);
    gradient[static_cast<size_t>(i)] = (above - below) / (2 * step);
  }
  return gradient;
}

double Dot(const HostTensor& y, const HostTensor& w) {
  double sum = 0;
  for (int64_t i = 0; i < y.elements(); ++i) sum += y.At(i) * w.At(i);
  return sum;
}

Threads::Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
Threads::~Threads() { omp_set_num_threads(before_); }

}  // namespace hbmtune::testing
