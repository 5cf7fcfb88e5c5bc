#pragma once

#include <memory>
#include <vector>

#include "kernels/program/block_pool.h"
#include "kernels/program/tape.h"

// Shared by tape.cc and autograd.cc only.
namespace hbmtune {

// Where instructions go; null once the Tape is gone, so that late handles write nothing.
struct Emitter {
  Emitter() = default;
  ~Emitter() { pool->Close(); }
  Emitter(const Emitter&) = delete;
  Emitter& operator=(const Emitter&) = delete;

  template <class T, class... Args>
  std::shared_ptr<T> Make(Args&&... args) {
    return std::allocate_shared<T>(PoolAllocator<T>(pool), std::forward<Args>(args)...);
  }

  Program* program = nullptr;
  BlockPool* pool = BlockPool::New();
  StorageId next_id = 0;
  std::vector<bool> live;

  StorageId NewId();
  void Rewind();
};

struct Storage {
  Storage(std::shared_ptr<Emitter> e, StorageId i) : emitter(std::move(e)), id(i) {}
  ~Storage();
  std::shared_ptr<Emitter> emitter;
  StorageId id;
};

struct Edge {
  std::shared_ptr<GradNode> node;
  uint32_t input = 0;  // which of the node's outputs this gradient belongs to
};

struct GradNode {
  std::string_view name;
  uint64_t sequence = 0;
  uint32_t outputs = 1;
  std::vector<Edge> next;  // one per input; a null node where no gradient is needed
  BackwardFn backward;

  // Of the backward pass that runs (Tape::GraphTask).
  const void* task = nullptr;
  int dependencies = 0;
  std::vector<Tensor> buffer;  // what arrived for its outputs
};

struct Tensor::Impl {
  static constexpr ViewId kNoView = ~ViewId{0};

  std::shared_ptr<Storage> storage;
  std::shared_ptr<Impl> base;  // of an Alias
  View view;
  ViewId view_id = kNoView;
  bool trainable = false;
  std::shared_ptr<GradNode> node;
  uint32_t output = 0;
  Tensor grad;
  std::weak_ptr<GradNode> accumulator;  // of a leaf; alive while a graph refers to it
};

}  // namespace hbmtune
