#include "kernels/lowering/fused/loss.h"

#include <algorithm>

#include "kernels/ops/copy/copy.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
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

struct Head {
  Parameter& parameter;
  Tensor weight;  // in the dtype of the product
};

// One chunk of rows: its losses, and, where asked for, the gradients of x and of the weight.
void Chunk(Context& context, const Head& head, const Tensor& x, const Tensor& targets,
           const Tensor& count, const Tensor& losses, const Tensor& dx,
           const Tensor& kept_logits) {
  Tape& tape = context.tape;
  Tensor logits = tape.Empty(x.dtype(), {x.shape()[0], head.parameter.weight.shape()[0]},
                             Category::kLogits);
  tape.Run(ops::kLinear, {x, head.weight}, {logits}, Attrs::Of(ops::LinearAttrs{}));
  if (kept_logits) tape.Run(ops::kCopy, {logits}, {kept_logits});
  std::vector<Tensor> in{logits, targets, count};
  if (context.loss_scale) in.push_back(context.loss_scale);
  std::vector<Tensor> out{losses};
  if (dx) out.push_back(logits);
  tape.Run(ops::kCrossEntropy, in, out,
           Attrs::Of(ops::CrossEntropyAttrs{
               -100, 1.0 / static_cast<double>(context.config.grad_accum)}));
  if (!dx) return;
  if (head.parameter.trainable) {
    GradientSlot slot = context.parameters.Gradient(head.parameter);
    tape.Run(ops::kLinearBackwardWeight, {logits, x}, {slot.tensor},
             Attrs::Of(ops::LinearAttrs{1, slot.accumulate, 0}));
  }
  tape.Run(ops::kLinearBackwardInput, {logits, head.weight}, {dx},
           Attrs::Of(ops::LinearAttrs{}));
}

}  // namespace

Targets MakeTargets(Context& context, const Tensor& labels) {
  Targets made;
  made.targets = context.tape.Empty(Dtype::kI64, labels.shape(), Category::kInputs);
  made.count = context.tape.Empty(Dtype::kF32, {1}, Category::kInputs);
  context.tape.Run(ops::kLabels, {labels}, {made.targets, made.count},
                   Attrs::Of(ops::LabelsAttrs{}));
  return made;
}

Tensor HeadLoss(Context& context, const Tensor& x, const LinearLayer& head,
                const Targets& targets, const Tensor& loss, bool first_micro_batch) {
  Tape& tape = context.tape;
  const int64_t rows = x.shape()[0];
  const Dtype dtype = context.config.fp32.head ? context.statistics() : context.compute;
  const int64_t chunk =
      context.config.loss_chunk_tokens > 0 ? context.config.loss_chunk_tokens : rows;
  Tensor flat = tape.ViewOf(targets.targets, {rows}, {1});
  Tensor losses = tape.Empty(context.statistics(), {rows}, Category::kLogits);
  Tensor dx;
  if (tape.grad_enabled()) dx = Activation(context, x.dtype(), x.shape());
  context.parameters.Use(*head.weight);
  {
    const Head whole{*head.weight, Cast(context, head.weight->weight, dtype)};
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t count = std::min(chunk, rows - begin);
      Chunk(context, whole, Cast(context, Rows(context, x, begin, count), dtype),
            Rows(context, flat, begin, count), targets.count,
            Rows(context, losses, begin, count),
            dx ? Rows(context, dx, begin, count) : Tensor{},
            context.logits ? Rows(context, context.logits, begin, count) : Tensor{});
    }
  }
  const double factor = 1.0 / static_cast<double>(context.config.grad_accum);
  tape.Run(ops::kCrossEntropyMean, {losses, targets.count}, {loss},
           Attrs::Of(ops::CrossEntropyMeanAttrs{factor, !first_micro_batch}));
  if (head.weight->trainable && tape.grad_enabled()) context.parameters.Done(*head.weight);
  Tensor root = tape.Detach(loss);
  tape.Attach("head_loss", {x}, root, [dx](std::vector<Tensor>) {
    return std::vector<Tensor>{dx};
  });
  return root;
}

}  // namespace hbmtune::lowering
