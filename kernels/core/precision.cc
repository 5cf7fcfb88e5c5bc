#include "kernels/core/precision.h"

namespace hbmtune {

void ApplyPrecision(Precision precision, Framework framework, TrainConfig& config) {
  bool pure = precision == Precision::kBf16 && !UsesDeepspeed(framework);
  bool mixed = !pure && precision != Precision::kFp32;
  Dtype half = precision == Precision::kFp16Amp ? Dtype::kF16 : Dtype::kBf16;
  bool half_weights = pure || (mixed && UsesDeepspeed(framework));
  config.param_dtype = half_weights ? half : Dtype::kF32;
  config.compute_dtype = pure || mixed ? half : Dtype::kF32;
  config.optimizer_state_dtype = pure ? half : Dtype::kF32;
  config.master_weights = mixed && UsesDeepspeed(framework);
  config.loss_scale = LossScaleConfig{};
  if (mixed && half == Dtype::kF16 && UsesDeepspeed(framework)) {
    config.loss_scale.window = 1000;  // DeepSpeed 0.19's fp16 section
    config.loss_scale.hysteresis = 2;
  }
}

std::optional<Precision> PrecisionOf(Framework framework, const TrainConfig& config) {
  for (size_t i = 0; i < EnumNames<Precision>::kNames.size(); ++i) {
    TrainConfig named;
    ApplyPrecision(static_cast<Precision>(i), framework, named);
    if (named.param_dtype == config.param_dtype && named.compute_dtype == config.compute_dtype &&
        named.optimizer_state_dtype == config.optimizer_state_dtype &&
        named.master_weights == config.master_weights) {
      return static_cast<Precision>(i);
    }
  }
  return std::nullopt;
}

}  // namespace hbmtune
