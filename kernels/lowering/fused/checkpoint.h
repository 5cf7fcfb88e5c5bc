#pragma once

#include <functional>
#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// A part of the model from one residual stream to the next.
struct Segment {
  std::function<Tensor(Context&, const Tensor& x)> run;
  std::vector<Tensor> parameters;  // the weights that it trains
};

// segment(x), of which only x is kept; the backward pass runs the segment again to make what it
// needs, but for its last product.
Tensor Checkpoint(Context& context, const Tensor& x, const Segment& segment);

// A segment in a chain of which some are recomputed.
struct ChainLink {
  Segment segment;
  bool recompute = false;
  bool keep_input = false;  // of a recomputed one; else its input is made again too
};

// The links one after the other. The input of a recomputed link that was not kept is made again
// from the nearest input before it that is there, through all links between, and lives until that
// link's backward pass is over. The first link's input is always kept.
Tensor CheckpointChain(Context& context, Tensor x, std::vector<ChainLink> links);

}  // namespace hbmtune::lowering
