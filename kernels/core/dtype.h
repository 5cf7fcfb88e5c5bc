#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/core/visit.h"

namespace hbmtune {

// Element types that tensors of a training step have.
enum class Dtype : uint8_t { kF32, kBf16, kF16, kF64, kI64, kI32, kU8 };

template <>
struct EnumNames<Dtype> {
  static constexpr std::array<std::string_view, 7> kNames = {"fp32", "bf16",  "fp16", "fp64",
                                                             "int64", "int32", "uint8"};
};

constexpr int64_t SizeOf(Dtype dtype) {
  constexpr std::array<int64_t, 7> kBytes = {4, 2, 2, 8, 8, 4, 1};
  return kBytes[static_cast<size_t>(dtype)];
}

constexpr bool IsHalf(Dtype dtype) { return dtype == Dtype::kBf16 || dtype == Dtype::kF16; }

}  // namespace hbmtune
