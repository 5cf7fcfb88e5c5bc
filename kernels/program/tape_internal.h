#pragma once

#include <memory>
#include <vector>

#include "kernels/program/tape.h"

// Shared by tape.cc and autograd.cc only.
namespace hbmtune {

// Where instructions go; null once the Tape is gone, so that late handles write nothing.
struct Emitter {
  Program* program = nullptr;
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
