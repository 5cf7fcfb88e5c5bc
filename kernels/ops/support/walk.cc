#include "kernels/ops/support/walk.h"

#include <algorithm>

namespace hbmtune::ops {

MergedLayout MergeDimensions(const Dims& shape, std::initializer_list<const Dims*> strides) {
  MergedLayout layout;
  const size_t tensors = strides.size();
  for (size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    bool merges = !layout.extents.empty();
    for (size_t t = 0; t < tensors && merges; ++t) {
      merges = layout.strides[t].back() == (*strides.begin()[t])[d] * shape[d];
    }
    if (!merges) layout.extents.push_back(1);
    layout.extents.back() *= shape[d];
    for (size_t t = 0; t < tensors; ++t) {
      const int64_t stride = (*strides.begin()[t])[d];
      if (merges) {
        layout.strides[t].back() = stride;
      } else {
        layout.strides[t].push_back(stride);
      }
    }
  }
  if (layout.extents.empty()) {
    layout.extents.push_back(1);
    for (size_t t = 0; t < tensors; ++t) layout.strides[t].push_back(1);
  }
  for (size_t t = tensors; t < 2; ++t) layout.strides[t] = layout.strides[0];
  return layout;
}

int64_t RunCount(const MergedLayout& layout, int64_t block) {
  int64_t count = (layout.extents.back() + block - 1) / block;
  for (size_t d = 0; d + 1 < layout.extents.size(); ++d) count *= layout.extents[d];
  return count;
}

RunOfElements RunAt(const MergedLayout& layout, int64_t index, int64_t block) {
  const int64_t pieces = (layout.extents.back() + block - 1) / block;
  const int64_t begin = index % pieces * block;
  RunOfElements run;
  run.n = std::min(block, layout.extents.back() - begin);
  for (size_t t = 0; t < 2; ++t) {
    run.stride[t] = layout.strides[t].back();
    run.offset[t] = begin * run.stride[t];
  }
  int64_t outer = index / pieces;
  for (size_t d = layout.extents.size() - 1; d-- > 0;) {
    const int64_t i = outer % layout.extents[d];
    outer /= layout.extents[d];
    for (size_t t = 0; t < 2; ++t) run.offset[t] += i * layout.strides[t][d];
  }
  return run;
}

}  // namespace hbmtune::ops
