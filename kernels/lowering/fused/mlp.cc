#include "kernels/lowering/fused/mlp.h"

#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/silu_gate/silu_gate.h"

namespace hbmtune::lowering {
namespace {

// The branch's last product, or, where only the graph is wanted, a stand-in of its shape over
// memory that nobody will read: the product's input, which lives anyway.
Tensor LastProduct(Context& context, const LinearLayer& layer, const Tensor& x,
                   LinearSaved& saved) {
  if (!context.skip_output || layer.lora_a != nullptr) {
    return LinearForward(context, layer, x, saved);
  }
  const Dims shape{x.shape()[0], layer.outputs()};
  return context.tape.ViewOf(x, shape, DenseStrides(shape));
}

Tensor Like(Context& context, const Tensor& x) {
  return Activation(context, x.dtype(), x.shape());
}

}  // namespace

Tensor SiluDown(Context& context, const Tensor& gate, const Tensor& up,
                const LinearLayer& down) {
  Tape& tape = context.tape;
  LinearSaved saved;
  std::vector<Tensor> inputs{gate, up};
  std::vector<Tensor> outputs;
  if (context.skip_output && down.lora_a == nullptr) {
    outputs.push_back(LastProduct(context, down, gate, saved));
  } else {
    Tensor inner = Like(context, gate);
    tape.Run(ops::kSiluGate, {gate, up}, {inner});
    outputs.push_back(LinearForward(context, down, inner, saved));
  }
  UseLinear(context, down);
  AppendParameters(down, inputs);
  auto backward = [&context, down, saved = std::move(saved), gate = tape.Detach(gate),
                   up = tape.Detach(up)](std::vector<Tensor> grads) {
    Tensor dy = std::move(grads[0]);
    Tensor dinner = Like(context, gate);
    LinearBackwardInput(context, down, dy, saved, dinner, false);
    // The gradients overwrite gate and up; the inner product takes the place of its gradient.
    context.tape.Run(ops::kSiluGateBackward, {dinner, gate, up}, {gate, up, dinner});
    LinearBackwardParameters(context, down, dy, dinner, saved);
    DoneLinear(context, down);
    return std::vector<Tensor>{context.tape.Detach(gate), context.tape.Detach(up)};
  };
  tape.Attach("silu_down", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

Tensor GeluDown(Context& context, const Tensor& inner, const LinearLayer& down, bool tanh_form) {
  Tape& tape = context.tape;
  const Attrs attrs = Attrs::Of(ops::GeluAttrs{tanh_form});
  LinearSaved saved;
  std::vector<Tensor> inputs{inner};
  std::vector<Tensor> outputs;
  if (context.skip_output && down.lora_a == nullptr) {
    outputs.push_back(LastProduct(context, down, inner, saved));
  } else {
    Tensor activated = Like(context, inner);
    tape.Run(ops::kGelu, {inner}, {activated}, attrs);
    outputs.push_back(LinearForward(context, down, activated, saved));
  }
  UseLinear(context, down);
  AppendParameters(down, inputs);
  auto backward = [&context, down, attrs, saved = std::move(saved),
                   inner = tape.Detach(inner)](std::vector<Tensor> grads) {
    Tensor dy = std::move(grads[0]);
    Tensor buffer = Like(context, inner);
    context.tape.Run(ops::kGelu, {inner}, {buffer}, attrs);
    LinearBackwardParameters(context, down, dy, buffer, saved);
    LinearBackwardInput(context, down, dy, saved, buffer, false);
    context.tape.Run(ops::kGeluBackward, {buffer, inner}, {buffer}, attrs);
    DoneLinear(context, down);
    return std::vector<Tensor>{std::move(buffer)};
  };
  tape.Attach("gelu_down", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

Tensor BranchEnd(Context& context, const Tensor& x, const LinearLayer& layer) {
  if (!context.skip_output) return std::move(LinearGroup(context, x, {layer})[0]);
  Tape& tape = context.tape;
  LinearSaved saved;
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs{LastProduct(context, layer, x, saved)};
  UseLinear(context, layer);
  AppendParameters(layer, inputs);
  auto backward = [&context, layer, saved = std::move(saved),
                   x = tape.Detach(x)](std::vector<Tensor> grads) {
    Tensor dy = std::move(grads[0]);
    LinearBackwardParameters(context, layer, dy, x, saved);
    Tensor dx = Like(context, x);
    LinearBackwardInput(context, layer, dy, saved, dx, false);
    DoneLinear(context, layer);
    return std::vector<Tensor>{std::move(dx)};
  };
  tape.Attach("linear", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

}  // namespace hbmtune::lowering
