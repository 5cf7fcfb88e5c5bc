#include "kernels/lowering/fused/norm.h"

#include "kernels/ops/add/add.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/layer_norm/layer_norm.h"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace hbmtune::lowering {
namespace {

struct NormSaved {
  Tensor mean;  // LayerNorm only
  Tensor rstd;
};

void RunNorm(Context& context, const NormLayer& layer, const Tensor& x, const Tensor& y,
             const NormSaved& saved) {
  const Attrs attrs = Attrs::Of(ops::NormAttrs{context.model().norm_eps});
  if (layer.bias == nullptr) {
    context.tape.Run(ops::kRmsNorm, {x, layer.weight->weight}, {y, saved.rstd}, attrs);
  } else {
    context.tape.Run(ops::kLayerNorm, {x, layer.weight->weight, layer.bias->weight},
                     {y, saved.mean, saved.rstd}, attrs);
  }
}

Tensor NormForward(Context& context, const NormLayer& layer, const Tensor& x, Dtype dtype,
                   NormSaved& saved) {
  const Dims rows{x.elements() / x.shape().back()};
  Tensor y = Activation(context, dtype, x.shape());
  saved.rstd = Activation(context, context.statistics(), rows);
  if (layer.bias != nullptr) saved.mean = Activation(context, context.statistics(), rows);
  RunNorm(context, layer, x, y, saved);
  return y;
}

// The same op over the same input: the statistics come out again as they were, in place.
Remake NormAgain(Context& context, const NormLayer& layer, const Tensor& x, Dtype dtype,
                 const NormSaved& saved) {
  if (!context.tape.grad_enabled()) return {};
  return [layer, dtype, saved = NormSaved(saved),
          kept = Saved(context, x)](Context& again) mutable {
    const Tensor input = kept.Take(again);
    Tensor y = Activation(again, dtype, input.shape());
    RunNorm(again, layer, input, y, saved);
    saved = {};
    return y;
  };
}

// dx = or += the norm's input gradient; the parameters' gradients on the way.
void NormBackward(Context& context, const NormLayer& layer, const Tensor& dy, const Tensor& x,
                  const NormSaved& saved, const Tensor& dx, bool accumulate) {
  const bool rms = layer.bias == nullptr;
  std::vector<Tensor> in{dy, x, layer.weight->weight};
  if (!rms) in.push_back(saved.mean);
  in.push_back(saved.rstd);
  std::vector<Tensor> out{dx};
  ops::NormBackwardAttrs attrs{0, accumulate};
  if (layer.weight->trainable) {
    GradientSlot weight = context.parameters.Gradient(*layer.weight);
    attrs.accumulate_parameters = weight.accumulate;
    out.push_back(weight.tensor);
    if (!rms) out.push_back(context.parameters.Gradient(*layer.bias).tensor);
    const int64_t parts = ops::NormPartials(saved.rstd.elements()) * (rms ? 1 : 2);
    out.push_back(context.tape.Empty(context.statistics(), {parts, x.shape().back()},
                                     Category::kWorkspace));
  }
  context.tape.Run(rms ? ops::kRmsNormBackward : ops::kLayerNormBackward, in, out,
                   Attrs::Of(attrs));
}

void UseNorm(Context& context, const NormLayer& layer, std::vector<Tensor>& inputs) {
  for (Parameter* parameter : {layer.weight, layer.bias}) {
    if (parameter == nullptr) continue;
    context.parameters.Use(*parameter);
    inputs.push_back(parameter->leaf);
  }
}

void DoneNorm(Context& context, const NormLayer& layer) {
  for (Parameter* parameter : {layer.bias, layer.weight}) {
    if (parameter != nullptr && parameter->trainable) context.parameters.Done(*parameter);
  }
}

// The gradient itself where nobody else holds it, else a fresh tensor to write to.
Tensor OwnedOrFresh(Context& context, const Tensor& gradient) {
  if (gradient.handles() == 1) return gradient;
  return Activation(context, gradient.dtype(), gradient.shape());
}

}  // namespace

NormLayer FindNorm(Context& context, const std::string& prefix) {
  return {&context.parameters.At(prefix + ".weight"), context.parameters.Find(prefix + ".bias")};
}

Branches NormWithResidual(Context& context, const Tensor& x, const std::vector<NormLayer>& layers,
                          Dtype dtype) {
  std::vector<NormSaved> saved(layers.size());
  std::vector<Remake> again;
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs{context.tape.Detach(x)};
  for (size_t i = 0; i < layers.size(); ++i) {
    outputs.push_back(NormForward(context, layers[i], x, dtype, saved[i]));
    again.push_back(NormAgain(context, layers[i], x, dtype, saved[i]));
    UseNorm(context, layers[i], inputs);
  }
  auto backward = [&context, layers, saved = std::move(saved),
                   kept = Saved(context, x)](std::vector<Tensor> grads) mutable {
    const Tensor input = kept.Take(context);
    Tensor dx = std::move(grads[0]);
    if (dx.handles() != 1) throw std::logic_error("a residual's gradient is still in use");
    for (size_t i = layers.size(); i-- > 0;) {
      NormBackward(context, layers[i], std::exchange(grads[i + 1], {}), input, saved[i], dx,
                   true);
      DoneNorm(context, layers[i]);
    }
    return std::vector<Tensor>{std::move(dx)};
  };
  context.tape.Attach("norm", inputs, outputs, std::move(backward));
  Branches branches{std::move(outputs[0]), {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    branches.normed.push_back({std::move(outputs[i + 1]), std::move(again[i])});
  }
  return branches;
}

Tensor Norm(Context& context, const Tensor& x, const NormLayer& layer, Dtype dtype) {
  Tensor input = context.tape.Detach(x);
  NormSaved saved;
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs{NormForward(context, layer, input, dtype, saved)};
  UseNorm(context, layer, inputs);
  auto backward = [&context, layer, saved = std::move(saved),
                   input = std::move(input)](std::vector<Tensor> grads) {
    Tensor dy = std::move(grads[0]);
    Tensor dx = dy.dtype() == input.dtype() ? OwnedOrFresh(context, dy)
                                            : Activation(context, input.dtype(), input.shape());
    NormBackward(context, layer, dy, input, saved, dx, false);
    DoneNorm(context, layer);
    return std::vector<Tensor>{std::move(dx)};
  };
  context.tape.Attach("norm", inputs, outputs, std::move(backward));
  return std::move(outputs[0]);
}

Tensor Dropout(Context& context, Tensor x, int64_t site) {
  const double probability = context.model().dropout;
  if (probability == 0) return x;
  const Attrs attrs = Attrs::Of(ops::DropoutAttrs{probability, site});
  Tensor key = RandomKey(context);
  Tensor y = context.tape.Detach(x);
  if (!context.skip_output) context.tape.Run(ops::kDropout, {y, key}, {y}, attrs);
  context.tape.Attach("dropout", {x}, y, [&context, key, attrs](std::vector<Tensor> grads) {
    Tensor dy = std::move(grads[0]);
    Tensor dx = OwnedOrFresh(context, dy);
    context.tape.Run(ops::kDropout, {dy, key}, {dx}, attrs);
    return std::vector<Tensor>{std::move(dx)};
  });
  return y;
}

Tensor AddResidual(Context& context, const Tensor& residual, std::vector<Tensor> branches) {
  Tape& tape = context.tape;
  Tensor sum = tape.Detach(branches[0]);
  branches.push_back(residual);
  tape.Attach("residual", branches, std::span(&sum, 1),
              [count = branches.size()](std::vector<Tensor> grads) {
                return std::vector<Tensor>(count, grads[0]);
              });
  if (context.skip_output) return sum;
  for (size_t i = 1; i < branches.size(); ++i) {
    tape.Run(ops::kAddInPlace, {sum, branches[i]}, {sum});
    branches[i] = {};
  }
  return sum;
}

}  // namespace hbmtune::lowering
