#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/core/visit.h"

namespace hbmtune {

// Whom an allocation belongs to, so that a peak can be explained. The last two are never
// allocated by a Program: they are what the driver and the libraries take beside it.
enum class Category : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kCheckpoints,
  kLogits,
  kWorkspace,
  kCommunication,
  kStaging,
  kInputs,
  kContext,
  kLibraries,
};

inline constexpr size_t kCategoryCount = 12;

template <>
struct EnumNames<Category> {
  static constexpr std::array<std::string_view, kCategoryCount> kNames = {
      "weights",       "gradients", "optimizer", "activations", "checkpoints", "logits",
      "workspace",     "communication", "staging", "inputs",    "context",     "libraries"};
};

}  // namespace hbmtune
