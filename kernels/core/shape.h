#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace hbmtune {

// A small list of extents or strides, in elements, outermost first. Rank 0 is a scalar.
class Dims {
 public:
  static constexpr size_t kMaxRank = 5;

  constexpr Dims() = default;
  // Throws std::length_error for more than kMaxRank entries.
  Dims(std::initializer_list<int64_t> extents);
  explicit Dims(std::span<const int64_t> extents);

  constexpr size_t rank() const { return rank_; }
  constexpr int64_t operator[](size_t i) const { return extents_[i]; }
  constexpr int64_t& operator[](size_t i) { return extents_[i]; }
  constexpr const int64_t* begin() const { return extents_.data(); }
  constexpr const int64_t* end() const { return extents_.data() + rank_; }
  // Last extent; the shape must not be a scalar.
  constexpr int64_t back() const { return extents_[rank_ - 1]; }

  friend bool operator==(const Dims& a, const Dims& b);

 private:
  std::array<int64_t, kMaxRank> extents_{};
  uint8_t rank_ = 0;
};

// Number of elements; 1 for a scalar.
int64_t ElementCount(const Dims& shape);
// Row-major strides of a dense tensor of this shape.
Dims DenseStrides(const Dims& shape);
// "[2, 128, 512]"
std::string ToString(const Dims& shape);

}  // namespace hbmtune
