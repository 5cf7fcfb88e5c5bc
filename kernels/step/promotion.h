#pragma once

#include "kernels/core/train_config.h"

namespace hbmtune::step {

// Whether a parameter has fp32 master and moments from now on: it gets them when its gradient's
// norm falls under the threshold, and gives them up when the norm is over threshold × hysteresis.
bool Promoted(bool before, double norm, const PromotionConfig& config);

}  // namespace hbmtune::step
