#include "kernels/lowering/fused/checkpoint.h"

#include <memory>
#include <utility>

#include "kernels/ops/copy/copy.h"

namespace hbmtune::lowering {
namespace {

class GradMode {
 public:
  GradMode(Tape& tape, bool enabled) : tape_(tape), before_(tape.grad_enabled()) {
    tape_.set_grad_enabled(enabled);
  }
  ~GradMode() { tape_.set_grad_enabled(before_); }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

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

// The generator for a run from saved state: a copy of it where it will be needed again, because
// drawing steps it.
Tensor ReplayRandom(Context& context, Tensor saved) {
  if (!saved) return context.random;
  if (saved.handles() == 1) return saved;
  Tensor replay = context.tape.Empty(Dtype::kI64, {2}, Category::kWorkspace);
  context.tape.Run(ops::kCopy, {saved}, {replay});
  return replay;
}

// The segment's output, of which nothing else is kept.
Tensor RunWithoutGraph(Context& context, const Segment& segment, const Tensor& x) {
  GradMode disabled(context.tape, false);
  Scoped category(context.stream_category, Category::kCheckpoints);
  return segment.run(context, x);
}

// What a recomputation needs beside the segment's input.
struct Replayed {
  Tensor random;  // the generator, if the model drops out
  Tensor starts;  // of documents, in packed rows
};

// Runs the segment again from x and its backward pass; returns x's gradient, if it needs one.
Tensor RecomputeBackward(Context& context, const Segment& segment, Tensor x, Replayed replayed,
                         bool needs_dx, std::vector<Tensor> grads) {
  Tape& tape = context.tape;
  GradMode enabled(tape, true);
  Tensor leaf = tape.Detach(x);
  x = {};
  leaf.set_requires_grad(needs_dx);
  std::vector<Tensor> roots;
  {
    Scoped skip(context.skip_output, true);
    Scoped replay(context.random, ReplayRandom(context, std::move(replayed.random)));
    Scoped documents(context.starts, std::move(replayed.starts));
    roots.push_back(segment.run(context, leaf));
  }
  tape.Backward(std::move(roots), std::move(grads));
  Tensor dx = leaf.grad();
  leaf.set_grad({});
  return dx;
}

std::vector<Tensor> NodeInputs(const Tensor& x, const Segment& segment) {
  std::vector<Tensor> inputs{x};
  inputs.insert(inputs.end(), segment.parameters.begin(), segment.parameters.end());
  return inputs;
}

}  // namespace

Tensor Checkpoint(Context& context, const Tensor& x, const Segment& segment) {
  Saved saved(context, x);
  Replayed replayed{SaveRandom(context), context.starts};
  std::vector<Tensor> outputs{RunWithoutGraph(context, segment, context.tape.Detach(x))};
  auto backward = [&context, segment, saved = std::move(saved),
                   replayed = std::move(replayed),
                   needs_dx = x.requires_grad()](std::vector<Tensor> grads) mutable {
    return std::vector<Tensor>{RecomputeBackward(context, segment, saved.Take(context),
                                                 std::move(replayed), needs_dx,
                                                 std::move(grads))};
  };
  context.tape.Attach("checkpoint", NodeInputs(x, segment), outputs, std::move(backward));
  return std::move(outputs[0]);
}

namespace {

// What the backward pass of a chain shares.
struct Chain {
  std::vector<ChainLink> links;
  std::vector<Tensor> inputs;  // by link; empty where it would have to be made again
  std::vector<Tensor> random;  // by link, if the model drops out
  Tensor starts;               // of documents, in packed rows
  size_t first_recomputed = 0;

  // The link's input, made again where it is not there. Inputs of later links are dropped: their
  // backward passes are over.
  Tensor Input(Context& context, size_t link) {
    for (size_t i = link + 1; i < inputs.size(); ++i) inputs[i] = random[i] = {};
    size_t begin = link;
    while (!inputs[begin]) --begin;
    Scoped documents(context.starts, starts);
    for (size_t i = begin; i < link; ++i) {
      Scoped replay(context.random, ReplayRandom(context, random[i]));
      inputs[i + 1] = RunWithoutGraph(context, links[i].segment, inputs[i]);
    }
    return std::exchange(inputs[link], {});
  }
};

Tensor RecomputedLink(Context& context, const std::shared_ptr<Chain>& chain, size_t i,
                      const Tensor& x) {
  const ChainLink& link = chain->links[i];
  if (link.keep_input || i == 0) chain->inputs[i] = context.tape.Detach(x);
  std::vector<Tensor> outputs{RunWithoutGraph(context, link.segment, context.tape.Detach(x))};
  auto backward = [&context, chain, i,
                   needs_dx = x.requires_grad()](std::vector<Tensor> grads) {
    Tensor input = chain->Input(context, i);
    Tensor starts =
        i == chain->first_recomputed ? std::exchange(chain->starts, {}) : chain->starts;
    return std::vector<Tensor>{RecomputeBackward(context, chain->links[i].segment,
                                                 std::move(input),
                                                 {std::move(chain->random[i]),
                                                  std::move(starts)},
                                                 needs_dx,
                                                 std::move(grads))};
  };
  context.tape.Attach("checkpoint", NodeInputs(x, link.segment), outputs, std::move(backward));
  return std::move(outputs[0]);
}

}  // namespace

Tensor CheckpointChain(Context& context, Tensor x, std::vector<ChainLink> links) {
  auto chain = std::make_shared<Chain>();
  chain->inputs.resize(links.size());
  chain->links = std::move(links);
  chain->starts = context.starts;
  while (!chain->links[chain->first_recomputed].recompute) ++chain->first_recomputed;
  for (size_t i = 0; i < chain->links.size(); ++i) {
    chain->random.push_back(SaveRandom(context));
    if (chain->links[i].recompute) {
      x = RecomputedLink(context, chain, i, x);
    } else {
      chain->inputs[i] = context.tape.Detach(x);  // the link keeps it anyway
      x = chain->links[i].segment.run(context, x);
    }
  }
  return x;
}

}  // namespace hbmtune::lowering
