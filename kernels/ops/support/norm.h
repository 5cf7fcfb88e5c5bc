#pragma once

#include <algorithm>
#include <cstdint>

namespace hbmtune::ops {

struct NormAttrs {
  double eps = 1e-5;
};

struct NormBackwardAttrs {
  int64_t accumulate_parameters = 0;  // dweight, dbias += instead of =
  int64_t accumulate_input = 0;       // dx += instead of = (the residual's gradient is there)
};

// Rows of the workspace in which parameter gradients of a norm over `rows` rows are summed by
// parts. It depends on the shape alone, and so does the result.
constexpr int64_t NormPartials(int64_t rows) {
  return std::clamp<int64_t>((rows + 15) / 16, 1, 64);
}

}  // namespace hbmtune::ops
