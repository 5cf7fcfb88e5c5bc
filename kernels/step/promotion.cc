#include "kernels/step/promotion.h"

namespace hbmtune::step {

bool Promoted(bool before, double norm, const PromotionConfig& config) {
  if (norm < config.grad_norm_threshold) return true;
  return before && norm <= config.grad_norm_threshold * config.hysteresis_ratio;
}

}  // namespace hbmtune::step
