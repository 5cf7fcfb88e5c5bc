#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "kernels/program/program.h"

namespace hbmtune::testing {

// One output of an op of a Program.
struct Output {
  size_t position;  // of the Run in program.code
  const OpKind* op;
  ViewId view;
  size_t index;  // among all outputs of the Program
};

// The Program with `in_place(attrs)` run on every output of the first step that `choose` accepts,
// right after the op that wrote it. The op gets the output as its only argument.
Program AfterOutputs(Program program, const OpKind& in_place,
                     const std::function<std::optional<Attrs>(const Output&)>& choose);

// The fp64 Program `full` with the roundings of its twin `half`, which is the same step in 16 bits:
// where the twin writes 16 bits, each element that is no number of `significand_bits` bits is moved
// by a random error, uniform over half their spacing on either side. (Monte Carlo arithmetic,
// Parker 1997.)
// Throws std::logic_error if the two are not the same instructions.
Program WithRoundings(const Program& half, const Program& full, int significand_bits,
                      uint64_t seed);

// The Program with all that ops of this name write in 16 bits scaled by `factor`.
Program WithScaledOutputs(Program program, std::string_view op, float factor);

// The Program with every matrix product x·Wᵀ summed in bf16, element by element.
Program WithNarrowSums(Program program);

}  // namespace hbmtune::testing
