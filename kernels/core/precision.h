#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {

// The shorthand `--precision`: a name for the dtype fields of a TrainConfig.
//   fp32      fp32 everywhere
//   fp16-amp  fp16 products with dynamic loss scaling, fp32 master weights and moments
//   bf16-amp  bf16 products, fp32 master weights and moments
//   bf16      bf16 weights, gradients and moments, no master weights
// "-amp" is autocast over fp32 weights, but under DeepSpeed 16-bit weights with fp32 masters,
// which is what its "fp16" and "bf16" sections mean; there `bf16` is the same as `bf16-amp`.
enum class Precision : uint8_t { kFp32, kFp16Amp, kBf16Amp, kBf16 };
template <>
struct EnumNames<Precision> {
  static constexpr std::array<std::string_view, 4> kNames = {"fp32", "fp16-amp", "bf16-amp",
                                                             "bf16"};
};

// Sets param_dtype, compute_dtype, optimizer_state_dtype, master_weights and, for fp16 under
// DeepSpeed, its defaults of loss_scale (window 1000, hysteresis 2).
void ApplyPrecision(Precision precision, Framework framework, TrainConfig& config);

// The name of the config's dtype fields, or nothing if no shorthand means them.
std::optional<Precision> PrecisionOf(Framework framework, const TrainConfig& config);

}  // namespace hbmtune
