#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace hbmtune {

// Memory for a Tape's many small objects of a few sizes: a lowering makes some thousands of each,
// and the general allocator took a third of its time. Blocks may outlive the owner: the pool goes
// with the last of them. One thread at a time.
class BlockPool {
 public:
  static BlockPool* New() { return new BlockPool; }
  // The owner is done with it.
  void Close() {
    closed_ = true;
    if (taken_ == 0) delete this;
  }

  void* Take(size_t bytes) {
    const size_t kind = KindOf(bytes);
    if (kind >= free_.size()) return ::operator new(bytes);
    ++taken_;
    if (free_[kind] == nullptr) Refill(kind);
    Link* block = free_[kind];
    free_[kind] = block->next;
    return block;
  }
  void Give(void* block, size_t bytes) {
    const size_t kind = KindOf(bytes);
    if (kind >= free_.size()) return ::operator delete(block);
    free_[kind] = new (block) Link{free_[kind]};
    if (--taken_ == 0 && closed_) delete this;
  }

 private:
  static constexpr size_t kUnit = 32;
  static constexpr size_t kBlocks = 32;  // made at a time
  struct Link {
    Link* next;
  };

  BlockPool() = default;
  static size_t KindOf(size_t bytes) { return (bytes - 1) / kUnit; }
  void Refill(size_t kind) {
    const size_t size = (kind + 1) * kUnit;
    chunks_.push_back(std::make_unique<std::byte[]>(size * kBlocks));
    for (size_t i = kBlocks; i-- > 0;) {
      free_[kind] = new (chunks_.back().get() + i * size) Link{free_[kind]};
    }
  }

  std::array<Link*, 16> free_{};
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t taken_ = 0;
  bool closed_ = false;
};

// For std::allocate_shared.
template <class T>
struct PoolAllocator {
  using value_type = T;
  explicit PoolAllocator(BlockPool* p) : pool(p) {}
  template <class U>
  PoolAllocator(const PoolAllocator<U>& other) : pool(other.pool) {}
  T* allocate(size_t n) { return static_cast<T*>(pool->Take(n * sizeof(T))); }
  void deallocate(T* block, size_t n) { pool->Give(block, n * sizeof(T)); }
  template <class U>
  bool operator==(const PoolAllocator<U>& other) const {
    return pool == other.pool;
  }
  BlockPool* pool;
};

}  // namespace hbmtune
