#include "kernels/ops/support/philox.h"

#include <algorithm>

namespace hbmtune::ops {
namespace {

constexpr int64_t kGroups = 64;  // most groups of four elements that are computed at a time

// 0 or scale for the elements of groups first … first + groups − 1.
template <class C>
HBMTUNE_INLINE void FillGroupsBody(DropoutMask mask, uint64_t first, C* multipliers,
                                   int64_t groups) {
  const auto scale = static_cast<C>(mask.scale);
  C words[4][kGroups];
#pragma omp simd
  for (int64_t g = 0; g < groups; ++g) {
    const PhiloxWords x = mask.Words(first + static_cast<uint64_t>(g));
    words[0][g] = x.a >= mask.threshold ? scale : C(0);
    words[1][g] = x.b >= mask.threshold ? scale : C(0);
    words[2][g] = x.c >= mask.threshold ? scale : C(0);
    words[3][g] = x.d >= mask.threshold ? scale : C(0);
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t lane = 0; lane < 4; ++lane) multipliers[4 * g + lane] = words[lane][g];
  }
}
HBMTUNE_VECTOR_CLONES void FillGroups(DropoutMask mask, uint64_t first, float* multipliers,
                                      int64_t groups) {
  FillGroupsBody(mask, first, multipliers, groups);
}
HBMTUNE_VECTOR_CLONES void FillGroups(DropoutMask mask, uint64_t first, double* multipliers,
                                      int64_t groups) {
  FillGroupsBody(mask, first, multipliers, groups);
}

}  // namespace

template <class C>
void FillDropoutMultipliers(const DropoutMask& mask, uint64_t first, C* multipliers, int64_t n) {
  constexpr int64_t kBlock = 4 * kGroups;
  C block[kBlock];
  for (int64_t i = 0; i < n;) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto skipped = static_cast<int64_t>(element % 4);
    const int64_t count = std::min(kBlock - skipped, n - i);
    C* out = count == kBlock ? multipliers + i : block;
    FillGroups(mask, element / 4, out, (skipped + count + 3) / 4);
    if (out == block) std::copy_n(block + skipped, count, multipliers + i);
    i += count;
  }
}
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, float*, int64_t);
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, double*, int64_t);

}  // namespace hbmtune::ops
