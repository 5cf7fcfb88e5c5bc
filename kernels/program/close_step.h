#pragma once

#include "kernels/program/program.h"

namespace hbmtune {

// For a steady step that gives up tensors it found and makes new ones of the same sizes, in the
// same order (weights that are gathered anew after each update): they get the ids of those that
// they replace, so that the step leaves exactly the storages that it found. Without Repeats. Throws
// std::logic_error where what is left is not what was there, or where the old one lives beside the
// new.
void CloseSteadyStep(Program& program);

}  // namespace hbmtune
