#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace hbmtune::memory {

// Nodes of one type, kept and reused; T::next links those that are spare. Addresses are stable.
template <class T>
class NodePool {
 public:
  // A node in its default state.
  T* Take() {
    if (spare_ == nullptr) Grow();
    T* node = spare_;
    spare_ = node->next;
    *node = T{};
    return node;
  }
  void Return(T* node) {
    node->next = spare_;
    spare_ = node;
  }

 private:
  static constexpr size_t kSlabNodes = 64;

  void Grow() {
    slabs_.push_back(std::make_unique<T[]>(kSlabNodes));
    for (size_t i = kSlabNodes; i > 0; --i) Return(&slabs_.back()[i - 1]);
  }

  std::vector<std::unique_ptr<T[]>> slabs_;
  T* spare_ = nullptr;
};

}  // namespace hbmtune::memory
