#include "kernels/lowering/fused/checkpoint.h"

#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

class GradMode {
 public:
  GradMode(Tape& tape, bool enabled) : tape_(tape), before_(tape.grad_enabled()) {
    tape_.set_grad_enabled(enabled);
  }
  ~GradMode() { tape_.set_grad_enabled(before_); }

 private:
  Tape& tape_;
  bool before_;
};

// The generator as it is now, from which a recomputation draws the same keys.
Tensor SaveRandom(Context& context) {
  if (!context.random) return {};
  Tensor saved = context.tape.Empty(Dtype::kI64, {2}, Category::kCheckpoints);
  context.tape.Run(ops::kCopy, {context.random}, {saved});
  return saved;
}

}  // namespace

Tensor Checkpoint(Context& context, const Tensor& x, Segment segment,
                  const std::vector<Tensor>& parameters) {
  Tape& tape = context.tape;
  Tensor saved = tape.Detach(x);
  Tensor random = SaveRandom(context);
  std::vector<Tensor> outputs;
  {
    NoGrad guard(tape);
    outputs.push_back(segment(context, saved));
  }
  std::vector<Tensor> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  auto backward = [&context, segment = std::move(segment), saved = std::move(saved),
                   random = std::move(random),
                   needs_dx = x.requires_grad()](std::vector<Tensor> grads) {
    Tape& tape = context.tape;
    GradMode enabled(tape, true);
    Tensor leaf = tape.Detach(saved);
    leaf.set_requires_grad(needs_dx);
    std::vector<Tensor> roots;
    {
      Scoped skip(context.skip_output, true);
      Scoped replay(context.random, random);
      roots.push_back(segment(context, leaf));
    }
    tape.Backward(std::move(roots), std::move(grads));
    Tensor dx = leaf.grad();
    leaf.set_grad({});
    return std::vector<Tensor>{std::move(dx)};
  };
  tape.Attach("checkpoint", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

}  // namespace hbmtune::lowering
