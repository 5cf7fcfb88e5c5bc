#include "kernels/lowering/fused/mlp.h"

#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/silu_gate/silu_gate.h"

namespace hbmtune::lowering {
namespace {

// In place of a branch's last product where only the graph is wanted: its shape over memory that
// nobody will read, the product's input, which lives anyway.
Tensor StandIn(Context& context, const LinearLayer& layer, const Tensor& x) {
  const Dims shape{x.shape()[0], layer.outputs()};
  return context.tape.ViewOf(x, shape, DenseStrides(shape));
}

Tensor Like(Context& context, const Tensor& x) {
  return Activation(context, x.dtype(), x.shape());
}

}  // namespace

Tensor SiluDown(Context& context, Tensor gate, Tensor up, const LinearLayer& down) {
  Tape& tape = context.tape;
  LinearSaved saved;
  std::vector<Tensor> inputs;
  Saved kept_gate(context, gate), kept_up(context, up);
  if (tape.grad_enabled()) inputs = {gate, up};
  std::vector<Tensor> outputs;
  if (context.skip_output && down.lora_a == nullptr) {
    outputs.push_back(StandIn(context, down, gate));
  } else {
    Tensor inner = Like(context, gate);
    tape.Run(ops::kSiluGate, {gate, up}, {inner});
    gate = up = {};
    outputs.push_back(LinearForward(context, down, inner, saved, context.stream_category));
  }
  UseLinear(context, down);
  AppendParameters(down, inputs);
  auto backward = [&context, down, saved = std::move(saved), kept_gate = std::move(kept_gate),
                   kept_up = std::move(kept_up)](std::vector<Tensor> grads) mutable {
    Tensor dy = std::move(grads[0]);
    const Tensor gate = kept_gate.Take(context), up = kept_up.Take(context);
    Tensor dinner = Like(context, gate);
    LinearBackwardInput(context, down, dy, saved, dinner, false, false);
    // The gradients overwrite gate and up; the inner product takes the place of its gradient.
    context.tape.Run(ops::kSiluGateBackward, {dinner, gate, up}, {gate, up, dinner});
    LinearBackwardParameters(context, down, std::move(dy), std::move(dinner), saved, true);
    DoneLinear(context, down);
    return std::vector<Tensor>{context.tape.Detach(gate), context.tape.Detach(up)};
  };
  tape.Attach("silu_down", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

Tensor GeluDown(Context& context, Tensor inner, const LinearLayer& down, bool tanh_form) {
  Tape& tape = context.tape;
  const Attrs attrs = Attrs::Of(ops::GeluAttrs{tanh_form});
  LinearSaved saved;
  std::vector<Tensor> inputs;
  Saved kept(context, inner);
  if (tape.grad_enabled()) inputs = {inner};
  std::vector<Tensor> outputs;
  if (context.skip_output && down.lora_a == nullptr) {
    outputs.push_back(StandIn(context, down, inner));
  } else {
    Tensor activated = Like(context, inner);
    tape.Run(ops::kGelu, {inner}, {activated}, attrs);
    inner = {};
    outputs.push_back(LinearForward(context, down, activated, saved, context.stream_category));
  }
  UseLinear(context, down);
  AppendParameters(down, inputs);
  auto backward = [&context, down, attrs, saved = std::move(saved),
                   kept = std::move(kept)](std::vector<Tensor> grads) mutable {
    Tensor dy = std::move(grads[0]);
    const Tensor inner = kept.Take(context);
    Tensor buffer = Like(context, inner);
    context.tape.Run(ops::kGelu, {inner}, {buffer}, attrs);
    LinearBackwardParameters(context, down, dy, buffer, saved, false);
    LinearBackwardInput(context, down, dy, saved, buffer, false, true);
    dy = {};
    context.tape.Run(ops::kGeluBackward, {buffer, inner}, {buffer}, attrs);
    DoneLinear(context, down);
    return std::vector<Tensor>{std::move(buffer)};
  };
  tape.Attach("gelu_down", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

Tensor BranchEnd(Context& context, Tensor x, const LinearLayer& layer) {
  if (!context.skip_output || layer.lora_a != nullptr) {
    return std::move(LinearGroup(context, x, {layer}, context.stream_category)[0]);
  }
  Tape& tape = context.tape;
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs{StandIn(context, layer, x)};
  UseLinear(context, layer);
  AppendParameters(layer, inputs);
  auto backward = [&context, layer, kept = Saved(context, x)](std::vector<Tensor> grads) mutable {
    Tensor dy = std::move(grads[0]);
    Tensor x = kept.Take(context);
    Tensor dx = Like(context, x);
    LinearSaved none;
    LinearBackwardParameters(context, layer, dy, std::move(x), none, false);
    LinearBackwardInput(context, layer, dy, none, dx, false, true);
    DoneLinear(context, layer);
    return std::vector<Tensor>{std::move(dx)};
  };
  tape.Attach("linear", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

}  // namespace hbmtune::lowering
