#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program/program.h"

namespace hbmtune::tuner {

// One allocation (bytes > 0) or free (bytes < 0); allocations are numbered in their order.
struct MemoryEvent {
  int64_t bytes = 0;
  int64_t allocation = 0;
  std::string op;  // for people

  bool operator==(const MemoryEvent& other) const {
    return bytes == other.bytes && allocation == other.allocation;
  }
};

// "forward", "backward", "reduce", "clip", "optimizer", "zero_grad" or "eval" of an optimizer step.
struct PhaseEvents {
  std::string name;
  int64_t step = 0;  // 0 is the setup
  std::vector<MemoryEvent> events;
};

// The device allocations of a Program as a recording would show them: setup, first step, steady
// step; the loss is a part of the forward pass.
std::vector<PhaseEvents> EventsOf(const Program& program);

}  // namespace hbmtune::tuner
