#include "kernels/lowering/fused/linear.h"

#include "kernels/ops/add/add.h"
#include "kernels/ops/dropout/dropout.h"
#include "kernels/ops/linear/linear.h"

namespace hbmtune::lowering {
namespace {

// Dropout sites of a layer: 0 … 7 are the model's own, adapters follow.
constexpr int64_t kFirstAdapterSite = 8;

double LoraScale(const Context& context) {
  const LoraSpec& lora = context.workload.lora;
  return lora.alpha / static_cast<double>(lora.rank);
}

Attrs AttrsOf(const LinearLayer& layer, double alpha = 1, bool accumulate = false) {
  return Attrs::Of(ops::LinearAttrs{alpha, accumulate, layer.weight_in_out});
}

Attrs AdapterAttrs(double alpha = 1, bool accumulate = false) {
  return Attrs::Of(ops::LinearAttrs{alpha, accumulate, 0});
}

// Products of 16-bit values need a 16-bit weight; under autocast the copy lives for one product.
Tensor ComputeWeight(Context& context, const Parameter& parameter, const Tensor& x) {
  return Cast(context, parameter.weight, x.dtype());
}

Tensor AdapterInput(Context& context, const LinearLayer& layer, const Tensor& x,
                    const Tensor& key) {
  const double probability = context.workload.lora.dropout;
  if (probability == 0) return x;
  Tensor dropped = Activation(context, x.dtype(), x.shape());
  context.tape.Run(ops::kDropout, {x, key}, {dropped},
                   Attrs::Of(ops::DropoutAttrs{probability, layer.site}));
  return dropped;
}

void WeightGradient(Context& context, Parameter& parameter, const Tensor& dy, const Tensor& x,
                    double alpha, bool in_out) {
  if (!parameter.trainable) return;
  GradientSlot slot = context.parameters.Gradient(parameter);
  context.tape.Run(ops::kLinearBackwardWeight, {dy, x}, {slot.tensor},
                   Attrs::Of(ops::LinearAttrs{alpha, slot.accumulate, in_out}));
}

Dims WithLast(Dims shape, int64_t last) {
  shape[shape.rank() - 1] = last;
  return shape;
}

}  // namespace

bool LinearLayer::trainable() const {
  return weight->trainable || (bias != nullptr && bias->trainable) || lora_a != nullptr;
}

int64_t LinearLayer::outputs() const { return weight->weight.shape()[weight_in_out ? 1 : 0]; }

LinearLayer FindLinear(Context& context, const std::string& prefix) {
  LinearLayer layer;
  layer.weight = &context.parameters.At(prefix + ".weight");
  layer.bias = context.parameters.Find(prefix + ".bias");
  layer.lora_a = context.parameters.Find(prefix + ".lora_A.weight");
  layer.lora_b = context.parameters.Find(prefix + ".lora_B.weight");
  layer.weight_in_out = context.model().architecture == Architecture::kGpt2 &&
                        layer.weight->role != ParameterRole::kHead;
  layer.site = kFirstAdapterSite + static_cast<int64_t>(layer.weight->role);
  return layer;
}

void UseLinear(Context& context, const LinearLayer& layer) {
  for (Parameter* parameter : {layer.weight, layer.bias, layer.lora_a, layer.lora_b}) {
    if (parameter != nullptr) context.parameters.Use(*parameter);
  }
}

void DoneLinear(Context& context, const LinearLayer& layer) {
  for (Parameter* parameter : {layer.lora_b, layer.lora_a, layer.bias, layer.weight}) {
    if (parameter != nullptr && parameter->trainable) context.parameters.Done(*parameter);
  }
}

void AppendParameters(const LinearLayer& layer, std::vector<Tensor>& inputs) {
  for (Parameter* parameter : {layer.weight, layer.bias, layer.lora_a, layer.lora_b}) {
    if (parameter != nullptr) inputs.push_back(parameter->weight);
  }
}

Tensor LinearForward(Context& context, const LinearLayer& layer, const Tensor& x,
                     LinearSaved& saved) {
  Tape& tape = context.tape;
  Tensor y = Activation(context, x.dtype(), WithLast(x.shape(), layer.outputs()));
  Tensor weight = ComputeWeight(context, *layer.weight, x);
  if (layer.bias != nullptr) {
    tape.Run(ops::kLinear, {x, weight, layer.bias->weight}, {y}, AttrsOf(layer));
  } else {
    tape.Run(ops::kLinear, {x, weight}, {y}, AttrsOf(layer));
  }
  if (layer.lora_a == nullptr) return y;
  if (context.workload.lora.dropout > 0) saved.key = RandomKey(context);
  Tensor input = AdapterInput(context, layer, x, saved.key);
  saved.low_rank = Activation(context, x.dtype(), WithLast(x.shape(), context.workload.lora.rank));
  tape.Run(ops::kLinear, {input, ComputeWeight(context, *layer.lora_a, x)}, {saved.low_rank},
           AdapterAttrs());
  tape.Run(ops::kLinear, {saved.low_rank, ComputeWeight(context, *layer.lora_b, x)}, {y},
           AdapterAttrs(LoraScale(context), true));
  return y;
}

namespace {

// Gradient with respect to A·x.
Tensor LowRankGradient(Context& context, const LinearLayer& layer, const Tensor& dy) {
  Tensor dlow = Activation(context, dy.dtype(), WithLast(dy.shape(), context.workload.lora.rank));
  context.tape.Run(ops::kLinearBackwardInput, {dy, ComputeWeight(context, *layer.lora_b, dy)},
                   {dlow}, AdapterAttrs(LoraScale(context)));
  return dlow;
}

}  // namespace

void LinearBackwardParameters(Context& context, const LinearLayer& layer, const Tensor& dy,
                              const Tensor& x, const LinearSaved& saved) {
  WeightGradient(context, *layer.weight, dy, x, 1, layer.weight_in_out);
  if (layer.bias != nullptr && layer.bias->trainable) {
    GradientSlot slot = context.parameters.Gradient(*layer.bias);
    context.tape.Run(ops::kLinearBackwardBias, {dy}, {slot.tensor},
                     Attrs::Of(ops::LinearBackwardBiasAttrs{slot.accumulate}));
  }
  if (layer.lora_a == nullptr) return;
  WeightGradient(context, *layer.lora_b, dy, saved.low_rank, LoraScale(context), false);
  Tensor dlow = LowRankGradient(context, layer, dy);
  WeightGradient(context, *layer.lora_a, dlow, AdapterInput(context, layer, x, saved.key), 1,
                 false);
}

void LinearBackwardInput(Context& context, const LinearLayer& layer, const Tensor& dy,
                         const LinearSaved& saved, const Tensor& dx, bool accumulate) {
  Tape& tape = context.tape;
  tape.Run(ops::kLinearBackwardInput, {dy, ComputeWeight(context, *layer.weight, dy)}, {dx},
           AttrsOf(layer, 1, accumulate));
  if (layer.lora_a == nullptr) return;
  Tensor dlow = LowRankGradient(context, layer, dy);
  Tensor weight = ComputeWeight(context, *layer.lora_a, dy);
  if (context.workload.lora.dropout == 0) {
    tape.Run(ops::kLinearBackwardInput, {dlow, weight}, {dx}, AdapterAttrs(1, true));
    return;
  }
  Tensor dropped = Activation(context, dx.dtype(), dx.shape());
  tape.Run(ops::kLinearBackwardInput, {dlow, weight}, {dropped}, AdapterAttrs());
  tape.Run(ops::kDropout, {dropped, saved.key}, {dropped},
           Attrs::Of(ops::DropoutAttrs{context.workload.lora.dropout, layer.site}));
  tape.Run(ops::kAddInPlace, {dx, dropped}, {dx});
}

std::vector<Tensor> LinearGroup(Context& context, const Tensor& x,
                                const std::vector<LinearLayer>& layers) {
  Tensor input = context.tape.Detach(Cast(context, x, context.compute));
  std::vector<LinearSaved> saved(layers.size());
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < layers.size(); ++i) {
    outputs.push_back(LinearForward(context, layers[i], input, saved[i]));
    UseLinear(context, layers[i]);
    AppendParameters(layers[i], inputs);
  }
  auto backward = [&context, layers, saved = std::move(saved), input = std::move(input),
                   dtype = x.dtype(), needs_dx = x.requires_grad()](std::vector<Tensor> grads) {
    Tensor dx;
    for (size_t i = layers.size(); i-- > 0;) {
      Tensor dy = std::move(grads[i]);
      LinearBackwardParameters(context, layers[i], dy, input, saved[i]);
      if (needs_dx) {
        const bool accumulate = static_cast<bool>(dx);
        if (!dx) dx = Activation(context, dtype, input.shape());
        LinearBackwardInput(context, layers[i], dy, saved[i], dx, accumulate);
      }
      DoneLinear(context, layers[i]);
    }
    return std::vector<Tensor>{std::move(dx)};
  };
  context.tape.Attach("linear", inputs, outputs, std::move(backward));
  return outputs;
}

}  // namespace hbmtune::lowering
