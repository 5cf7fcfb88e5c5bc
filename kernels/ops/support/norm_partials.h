#pragma once

#include <algorithm>

#include "kernels/ops/support/leaves.h"
#include "kernels/ops/support/parallel.h"
#include "kernels/ops/support/rows.h"

namespace hbmtune::ops {

// gradient[i] (+)= Σ over parts of partials[part, i], parts ascending.
template <class C>
void SumPartials(const C* partials, int64_t parts, int64_t width, const TensorArg& gradient,
                 bool accumulate) {
  const RowOperand<C> out(gradient, 0);
  ParallelBlocks(width, 256, parts, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    C* row = out.Update(begin, n);
    if (!accumulate) std::fill_n(row, n, C(0));
    for (int64_t part = 0; part < parts; ++part) AddTo(row, partials + part * width + begin, n);
    out.Commit(row, begin, n);
  });
}

}  // namespace hbmtune::ops
