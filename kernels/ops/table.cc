#include "kernels/ops/table.h"

#include <array>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/adamw_8bit/adamw_8bit.h"
#include "kernels/ops/add/add.h"
#include "kernels/ops/aten_bmm/aten_bmm.h"
#include "kernels/ops/aten_dropout/aten_dropout.h"
#include "kernels/ops/aten_nll_loss/aten_nll_loss.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_range/aten_range.h"
#include "kernels/ops/aten_reduce/aten_reduce.h"
#include "kernels/ops/aten_softmax/aten_softmax.h"
#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/document_starts/document_starts.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/grad_norm/grad_norm.h"
#include "kernels/ops/labels/labels.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/loss_scale/loss_scale.h"
#include "kernels/ops/optimizer_step/optimizer_step.h"
#include "kernels/ops/positions/positions.h"
#include "kernels/ops/random_key/random_key.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rotary/rotary.h"
#include "kernels/ops/scale/scale.h"
#include "kernels/ops/sgd/sgd.h"
#include "kernels/ops/silu_gate/silu_gate.h"

namespace hbmtune::ops {
namespace {

constexpr std::array kTable = {
    &kAdamw,
    &kAdamw8bit,
    &kAdd,
    &kAddInPlace,
    &kAttentionMaterialised,
    &kAttentionMaterialisedBackward,
    &kAttentionTiled,
    &kAttentionTiledBackward,
    &kCopy,
    &kCrossEntropy,
    &kCrossEntropyMean,
    &kDocumentStarts,
    &kDropout,
    &kEmbedding,
    &kEmbeddingBackward,
    &kFill,
    &kFinite,
    &kFiniteUnscale,
    &kGelu,
    &kGeluBackward,
    &kGradNorm,
    &kGradNormSquares,
    &kLabels,
    &kLayerNorm,
    &kLayerNormBackward,
    &kLinear,
    &kLinearBackwardBias,
    &kLinearBackwardInput,
    &kLinearBackwardWeight,
    &kLossScale,
    &kOptimizerStep,
    &kPositions,
    &kPositionsBackward,
    &kRandomKey,
    &kRmsNorm,
    &kRmsNormBackward,
    &kRotary,
    &kRotaryTable,
    &kScale,
    &kSgd,
    &kSiluGate,
    &kSiluGateBackward,
};

constexpr std::array kAtenTable = {
    &kAtenBmm,
    &kAtenDropout,
    &kAtenDropoutBackward,
    &kAtenNllLoss,
    &kAtenNllLossBackward,
    &kAtenAdd,
    &kAtenMul,
    &kAtenAddScalar,
    &kAtenMulScalar,
    &kAtenNeg,
    &kAtenPow,
    &kAtenRsqrt,
    &kAtenReciprocal,
    &kAtenCos,
    &kAtenSin,
    &kAtenTanh,
    &kAtenTanhBackward,
    &kAtenSilu,
    &kAtenSiluBackward,
    &kAtenGelu,
    &kAtenGeluBackward,
    &kAtenClampMax,
    &kAtenArange,
    &kAtenInverseFrequencies,
    &kAtenCausalMask,
    &kAtenSum,
    &kAtenNorm,
    &kAtenSoftmax,
    &kAtenLogSoftmax,
    &kAtenSoftmaxBackward,
    &kAtenLogSoftmaxBackward,
};

}  // namespace

std::span<const OpKind* const> AllOps() { return kTable; }

std::span<const OpKind* const> AtenOps() { return kAtenTable; }

const OpKind* FindOp(std::string_view name) {
  for (const auto table : {AllOps(), AtenOps()}) {
    for (const OpKind* op : table) {
      if (op->name == name) return op;
    }
  }
  return nullptr;
}

TapeOps OpsForTape() {
  return {.add = &kAdd, .add_in_place = &kAddInPlace, .fill = &kFill, .copy = &kCopy};
}

}  // namespace hbmtune::ops
