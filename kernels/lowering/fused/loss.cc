#include "kernels/lowering/fused/loss.h"

#include <algorithm>

#include "kernels/lowering/fused/data_parallel.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/document_starts/document_starts.h"
#include "kernels/ops/labels/labels.h"
#include "kernels/ops/linear/linear.h"

namespace hbmtune::lowering {
namespace {

// Rows [begin, begin + rows) of a dense tensor.
Tensor Rows(Context& context, const Tensor& x, int64_t begin, int64_t rows) {
  Dims shape = x.shape();
  shape[0] = rows;
  return context.tape.ViewOf(x, shape, x.strides(), begin * x.strides()[0]);
}

// What the chunks share. What the last chunk has used for the last time ends there.
struct HeadWork {
  Parameter& parameter;
  Tensor weight;   // in the dtype of the product
  Tensor x;        // [rows, hidden]
  Tensor targets;  // [rows]
  Tensor count;
  Tensor losses;   // [rows]
  Tensor dx;       // over x; empty in an evaluation
};

// One chunk of rows: its losses, and, where asked for, the gradients of x and of the weight.
void Chunk(Context& context, HeadWork& work, int64_t begin, int64_t count) {
  Tape& tape = context.tape;
  const bool last = begin + count == work.x.shape()[0];
  const bool train_weight = work.dx && work.parameter.trainable;
  Tensor x = Cast(context, Rows(context, work.x, begin, count), work.weight.dtype());
  Tensor targets = Rows(context, work.targets, begin, count);
  if (last) work.x = work.targets = {};
  Tensor logits = tape.Empty(x.dtype(), {count, work.parameter.shape[0]},
                             Category::kLogits);
  tape.Run(ops::kLinear, {x, work.weight}, {logits}, Attrs::Of(ops::LinearAttrs{}));
  if (!train_weight) x = {};
  if (context.logits) {
    tape.Run(ops::kCopy, {logits}, {Rows(context, context.logits, begin, count)});
  }
  std::vector<Tensor> in{logits, std::move(targets), work.count};
  if (context.loss_scale) in.push_back(context.loss_scale);
  std::vector<Tensor> out{Rows(context, work.losses, begin, count)};
  if (work.dx) out.push_back(logits);
  const double factor = context.loss_factor;
  tape.Run(ops::kCrossEntropy, in, out, Attrs::Of(ops::CrossEntropyAttrs{-100, factor}));
  if (!work.dx) return;
  in.clear();
  if (train_weight) {
    GradientSlot slot = context.parameters.Gradient(work.parameter);
    tape.Run(ops::kLinearBackwardWeight, {logits, x}, {slot.tensor},
             Attrs::Of(ops::LinearAttrs{1, slot.accumulate, 0}));
    x = {};
  }
  tape.Run(ops::kLinearBackwardInput, {logits, work.weight},
           {Rows(context, work.dx, begin, count)}, Attrs::Of(ops::LinearAttrs{}));
}

}  // namespace

Tensor DocumentStarts(Context& context, const Tensor& labels) {
  if (context.workload.sequences.layout != SequenceLayout::kPacked) return {};
  Tensor starts = context.tape.Empty(Dtype::kI64, labels.shape(), Category::kInputs);
  context.tape.Run(ops::kDocumentStarts, {labels}, {starts},
                   Attrs::Of(ops::DocumentStartsAttrs{}));
  return starts;
}

Targets MakeTargets(Context& context, const Tensor& labels) {
  Targets made;
  made.targets = context.tape.Empty(Dtype::kI64, labels.shape(), Category::kInputs);
  made.count = context.tape.Empty(Dtype::kF32, {1}, Category::kInputs);
  context.tape.Run(ops::kLabels, {labels}, {made.targets, made.count},
                   Attrs::Of(ops::LabelsAttrs{}));
  return made;
}

Tensor HeadLoss(Context& context, Tensor x, const LinearLayer& head, Targets targets,
                const Tensor& loss, bool first_micro_batch) {
  Tape& tape = context.tape;
  const int64_t rows = x.shape()[0];
  const Dtype dtype = context.config.fp32.head ? context.statistics() : context.compute;
  const int64_t chunk =
      context.config.loss_chunk_tokens > 0 ? context.config.loss_chunk_tokens : rows;
  Tensor dx;  // over x: a row's gradient is written when nothing needs the row any more
  if (tape.grad_enabled()) dx = tape.Detach(x);
  Tensor root = tape.Detach(loss);
  tape.Attach("head_loss", {x}, root, [dx](std::vector<Tensor>) {
    return std::vector<Tensor>{dx};
  });
  context.parameters.Use(*head.weight);
  Tensor losses = tape.Empty(context.statistics(), {rows}, Category::kLogits);
  Gather(context, *head.weight);
  {
    Tensor flat = tape.ViewOf(std::exchange(targets.targets, {}), {rows}, {1});
    HeadWork work{*head.weight,    Cast(context, head.weight->weight, dtype),
                  std::move(x),    std::move(flat),
                  targets.count,   losses,
                  std::move(dx)};
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      Chunk(context, work, begin, std::min(chunk, rows - begin));
    }
  }
  Release(context, *head.weight);
  if (head.weight->trainable && tape.grad_enabled()) context.parameters.Done(*head.weight);
  tape.Run(ops::kCrossEntropyMean, {losses, targets.count}, {loss},
           Attrs::Of(ops::CrossEntropyMeanAttrs{context.loss_factor, !first_micro_batch}));
  return root;
}

}  // namespace hbmtune::lowering
