#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/dtype.h"

namespace hbmtune::comm {

// to[i] = Σ terms[r][i], r ascending, in fp32 (fp64 for fp64), rounded once. `to` may be a term.
void SumInOrder(const std::vector<const void*>& terms, Dtype dtype, int64_t elements, void* to);

}  // namespace hbmtune::comm
