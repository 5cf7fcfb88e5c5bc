#pragma once

#include <span>
#include <string_view>

#include "kernels/program/op_kind.h"
#include "kernels/program/tape.h"

namespace hbmtune::ops {

// Every op of the stack, in the order of the rooms' names.
std::span<const OpKind* const> AllOps();

// PyTorch's operators, of which the lowerings of its programs are made (rooms aten_*): general in
// strides and dtypes, on the host plain loops.
std::span<const OpKind* const> AtenOps();

// The op of that name in either table, or null.
const OpKind* FindOp(std::string_view name);

// The four that the tape writes by itself.
TapeOps OpsForTape();

}  // namespace hbmtune::ops
