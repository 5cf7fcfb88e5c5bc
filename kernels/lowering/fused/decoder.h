#pragma once

#include "kernels/lowering/fused/loss.h"

namespace hbmtune::lowering {

// The whole model over one micro-batch: token ids [batch, tokens] to the root of the backward
// pass, with the checkpointing that the config asks for.
Tensor Decoder(Context& context, Tensor token_ids, Targets targets, const Tensor& loss,
               bool first_micro_batch);

// cos and sin for context.tokens positions, if the model rotates.
void MakeRotaryTables(Context& context);

}  // namespace hbmtune::lowering
