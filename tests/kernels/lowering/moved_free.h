#pragma once

#include <cstddef>
#include <vector>

#include "kernels/program/program.h"

namespace hbmtune::testing {

// The frees of the steady step, by position.
std::vector<size_t> SteadyFrees(const Program& program);

// Whether an instruction does something with memory that exists: an op, a copy, a collective, …
bool IsOp(const Instruction& instruction);

// Whether it is an op on a view of that storage. For Programs without Repeats.
bool Uses(const Program& program, const Instruction& instruction, StorageId storage);

// Position of the op before `i`, or `i` where there is none in the steady step.
size_t OpBefore(const Program& program, size_t i);

// The same Program with instruction `from` in front of instruction `to`, which is before it.
Program Moved(Program program, size_t from, size_t to);

}  // namespace hbmtune::testing
