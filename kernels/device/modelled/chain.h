#pragma once

#include <memory>
#include <vector>

#include "kernels/device/modelled/folded_trace.h"

namespace hbmtune::device {

// One run of a job whose steps differ in shape: setup and first step are those of the first trace,
// the steady step is the steady steps of all others one after the other. What lives between steps
// is the same in each, allocated in the same order; std::logic_error if it is not.
FoldedTrace Chain(const std::vector<std::shared_ptr<const FoldedTrace>>& steps);

}  // namespace hbmtune::device
