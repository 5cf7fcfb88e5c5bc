#pragma once

#include "kernels/step/executor.h"

// Shared by executor.cc and adopt.cc only.
namespace hbmtune::step {

// A storage while it is allocated.
struct Executor::Slot {
  memory::Block* block = nullptr;  // device memory
  void* data = nullptr;
  int64_t bytes = 0;
  bool live = false;
  bool pinned = false;
  memory::PinnedPool::Slice slice;  // pinned memory
};

struct Executor::Loop {
  size_t begin;  // position of the Repeat
  int64_t count;
  int64_t iteration;
};

}  // namespace hbmtune::step
