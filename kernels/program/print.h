#pragma once

#include <iosfwd>
#include <string>

#include "kernels/program/program.h"

namespace hbmtune {

// One instruction as a line, without its end: "run linear s12[64, 32] s3[32, 32] -> s14[64, 32]".
std::string Describe(const Program& program, const Instruction& instruction);

// The whole Program, a line an instruction with its number, indented inside Repeats; the sections
// have headings.
void Print(const Program& program, std::ostream& out);

}  // namespace hbmtune
