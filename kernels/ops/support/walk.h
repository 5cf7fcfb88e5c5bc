#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kernels/core/shape.h"
#include "kernels/ops/support/parallel.h"

namespace hbmtune::ops {

// A piece of the innermost dimension, for up to two tensors of one shape: `n` elements, where
// they begin and how far apart they are in each tensor (in elements).
struct RunOfElements {
  int64_t n = 0;
  std::array<int64_t, 2> offset{};
  std::array<int64_t, 2> stride{};
};

// Shape and strides of up to two tensors with neighbouring dimensions merged where both allow it.
struct MergedLayout {
  std::vector<int64_t> extents;                 // outermost first
  std::array<std::vector<int64_t>, 2> strides;  // of each tensor
};
MergedLayout MergeDimensions(const Dims& shape, std::initializer_list<const Dims*> strides);

// The run number `index` of those into which a layout is cut, each at most `block` elements.
RunOfElements RunAt(const MergedLayout& layout, int64_t index, int64_t block);
int64_t RunCount(const MergedLayout& layout, int64_t block);

// Calls fn(run) in parallel for runs that cover all elements of tensors of one shape.
template <class Fn>
void ForEachRun(const Dims& shape, std::initializer_list<const Dims*> strides, Fn&& fn) {
  constexpr int64_t kBlock = 65536;
  const MergedLayout layout = MergeDimensions(shape, strides);
  const int64_t runs = RunCount(layout, kBlock);
  if (runs == 0) return;
  ParallelFor(runs, ElementCount(shape) / runs,
              [&](int64_t i) { fn(RunAt(layout, i, kBlock)); });
}

}  // namespace hbmtune::ops
