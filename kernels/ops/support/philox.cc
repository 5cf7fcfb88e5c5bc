#include "kernels/ops/support/philox.h"

#include <algorithm>

namespace hbmtune::ops {
namespace {

constexpr int64_t kGroups = 64;  // groups of four elements that are computed at a time

// 0 or scale for the elements of groups first … first + kGroups − 1.
HBMTUNE_VECTOR_CLONES void FillGroups(DropoutMask mask, uint64_t first, float* multipliers) {
  const auto scale = static_cast<float>(mask.scale);
  float words[4][kGroups];
#pragma omp simd
  for (int64_t g = 0; g < kGroups; ++g) {
    const PhiloxWords x = mask.Words(first + static_cast<uint64_t>(g));
    words[0][g] = x.a >= mask.threshold ? scale : 0.0f;
    words[1][g] = x.b >= mask.threshold ? scale : 0.0f;
    words[2][g] = x.c >= mask.threshold ? scale : 0.0f;
    words[3][g] = x.d >= mask.threshold ? scale : 0.0f;
  }
  for (int64_t g = 0; g < kGroups; ++g) {
    for (int64_t lane = 0; lane < 4; ++lane) multipliers[4 * g + lane] = words[lane][g];
  }
}

}  // namespace

template <class C>
void FillDropoutMultipliers(const DropoutMask& mask, uint64_t first, C* multipliers, int64_t n) {
  float block[4 * kGroups];
  for (int64_t i = 0; i < n;) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto skipped = static_cast<int64_t>(element % 4);
    FillGroups(mask, element / 4, block);
    const int64_t count = std::min(4 * kGroups - skipped, n - i);
    for (int64_t j = 0; j < count; ++j) {
      multipliers[i + j] = block[skipped + j] != 0 ? static_cast<C>(mask.scale) : C(0);
    }
    i += count;
  }
}
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, float*, int64_t);
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, double*, int64_t);

}  // namespace hbmtune::ops
