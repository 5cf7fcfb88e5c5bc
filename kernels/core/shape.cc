#include "kernels/core/shape.h"

#include <algorithm>
#include <stdexcept>

namespace hbmtune {

Dims::Dims(std::initializer_list<int64_t> extents)
    : Dims(std::span<const int64_t>(extents.begin(), extents.size())) {}

Dims::Dims(std::span<const int64_t> extents) : rank_(static_cast<uint8_t>(extents.size())) {
  if (extents.size() > kMaxRank) {
    throw std::length_error("a tensor has at most " + std::to_string(kMaxRank) +
                            " dimensions, got " + std::to_string(extents.size()));
  }
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

bool operator==(const Dims& a, const Dims& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

int64_t ElementCount(const Dims& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

Dims DenseStrides(const Dims& shape) {
  Dims strides = shape;
  int64_t step = 1;
  for (size_t i = shape.rank(); i-- > 0;) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

std::string ToString(const Dims& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace hbmtune
