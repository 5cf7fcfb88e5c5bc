#pragma once

#include <cstdint>

#include "kernels/program/program.h"

namespace hbmtune::step {

// Pinned memory that a Program needs at most, as PinnedPool hands it out; 0 if it offloads
// nothing.
int64_t PinnedBytes(const Program& program);

}  // namespace hbmtune::step
