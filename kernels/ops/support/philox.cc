#include "kernels/ops/support/philox.h"

namespace hbmtune::ops {

template <class C>
void FillDropoutMultipliers(const DropoutMask& mask, uint64_t first, C* multipliers, int64_t n) {
  const C scale = static_cast<C>(mask.scale);
  int64_t i = 0;
  while (i < n) {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto words = mask.Words(element / 4);
    for (uint64_t lane = element % 4; lane < 4 && i < n; ++lane, ++i) {
      multipliers[i] = words[lane] >= mask.threshold ? scale : C(0);
    }
  }
}
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, float*, int64_t);
template void FillDropoutMultipliers(const DropoutMask&, uint64_t, double*, int64_t);

}  // namespace hbmtune::ops
