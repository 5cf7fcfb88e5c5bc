#include "kernels/lowering/fused/linear.h"

#include <algorithm>
#include <utility>

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

int64_t LinearLayer::outputs() const { return weight->shape[weight_in_out ? 1 : 0]; }

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
    if (parameter != nullptr) inputs.push_back(parameter->leaf);
  }
}

Tensor LinearForward(Context& context, const LinearLayer& layer, const Tensor& x,
                     LinearSaved& saved, Category category) {
  Tape& tape = context.tape;
  Tensor y = tape.Empty(x.dtype(), WithLast(x.shape(), layer.outputs()), category);
  const bool adapted = layer.lora_a != nullptr;
  if (adapted) {
    if (context.workload.lora.dropout > 0) saved.key = RandomKey(context);
    saved.low_rank =
        Activation(context, x.dtype(), WithLast(x.shape(), context.workload.lora.rank));
    Tensor input = AdapterInput(context, layer, x, saved.key);
    if (!tape.grad_enabled()) saved.key = {};
    tape.Run(ops::kLinear, {input, ComputeWeight(context, *layer.lora_a, x)}, {saved.low_rank},
             AdapterAttrs());
    input = {};
    tape.Run(ops::kLinear, {saved.low_rank, ComputeWeight(context, *layer.lora_b, x)}, {y},
             AdapterAttrs(LoraScale(context)));
    if (!tape.grad_enabled()) saved.low_rank = {};
  }
  std::vector<Tensor> in{x, ComputeWeight(context, *layer.weight, x)};
  if (layer.bias != nullptr) in.push_back(layer.bias->weight);
  tape.Run(ops::kLinear, in, std::vector<Tensor>{y}, AttrsOf(layer, 1, adapted));
  return y;
}

namespace {

// Gradient with respect to A·x, made once.
Tensor LowRankGradient(Context& context, const LinearLayer& layer, const Tensor& dy,
                       LinearSaved& saved) {
  if (saved.low_rank_gradient) return saved.low_rank_gradient;
  saved.low_rank_gradient =
      Activation(context, dy.dtype(), WithLast(dy.shape(), context.workload.lora.rank));
  context.tape.Run(ops::kLinearBackwardInput, {dy, ComputeWeight(context, *layer.lora_b, dy)},
                   {saved.low_rank_gradient}, AdapterAttrs(LoraScale(context)));
  return saved.low_rank_gradient;
}

}  // namespace

void LinearBackwardParameters(Context& context, const LinearLayer& layer, Tensor dy, Tensor x,
                              LinearSaved& saved, bool last) {
  if (layer.bias != nullptr && layer.bias->trainable) {
    GradientSlot slot = context.parameters.Gradient(*layer.bias);
    context.tape.Run(ops::kLinearBackwardBias, {dy}, {slot.tensor},
                     Attrs::Of(ops::LinearBackwardBiasAttrs{slot.accumulate}));
  }
  if (layer.lora_a == nullptr) {
    WeightGradient(context, *layer.weight, dy, x, 1, layer.weight_in_out);
    return;
  }
  WeightGradient(context, *layer.lora_b, dy, saved.low_rank, LoraScale(context), false);
  saved.low_rank = {};
  Tensor dlow = LowRankGradient(context, layer, dy, saved);
  dy = {};
  Tensor input = AdapterInput(context, layer, x, saved.key);
  x = {};
  if (last) saved.key = saved.low_rank_gradient = {};
  WeightGradient(context, *layer.lora_a, dlow, input, 1, false);
}

void LinearBackwardInput(Context& context, const LinearLayer& layer, const Tensor& dy,
                         LinearSaved& saved, const Tensor& dx, bool accumulate, bool last) {
  Tape& tape = context.tape;
  if (layer.lora_a != nullptr) {
    Tensor dlow = LowRankGradient(context, layer, dy, saved);
    if (last) saved.low_rank_gradient = {};
    const double probability = context.workload.lora.dropout;
    Tensor into = probability == 0 ? dx : Activation(context, dx.dtype(), dx.shape());
    tape.Run(ops::kLinearBackwardInput, {dlow, ComputeWeight(context, *layer.lora_a, dy)}, {into},
             AdapterAttrs(1, probability == 0 && accumulate));
    dlow = {};
    if (probability > 0) {
      tape.Run(ops::kDropout, {into, saved.key}, {accumulate ? into : dx},
               Attrs::Of(ops::DropoutAttrs{probability, layer.site}));
      if (last) saved.key = {};
      if (accumulate) tape.Run(ops::kAddInPlace, {dx, into}, {dx});
    }
    accumulate = true;
  }
  tape.Run(ops::kLinearBackwardInput, {dy, ComputeWeight(context, *layer.weight, dy)}, {dx},
           AttrsOf(layer, 1, accumulate));
}

std::vector<Tensor> LinearGroup(Context& context, const Tensor& x,
                                const std::vector<LinearLayer>& layers, Category category,
                                Remake remake) {
  const Tensor operand = Cast(context, x, context.compute);
  std::vector<LinearSaved> saved(layers.size());
  std::vector<Tensor> inputs{x};
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < layers.size(); ++i) {
    outputs.push_back(LinearForward(context, layers[i], operand, saved[i], category));
    UseLinear(context, layers[i]);
    AppendParameters(layers[i], inputs);
  }
  const bool trains = std::any_of(layers.begin(), layers.end(),
                                  [](const LinearLayer& layer) { return layer.trainable(); });
  if (!trains) remake = {};
  const bool keeps = trains && !remake;
  auto backward = [&context, layers, saved = std::move(saved), remake = std::move(remake),
                   kept = keeps ? Saved(context, operand) : Saved(),
                   dtype = x.dtype(), shape = x.shape(),
                   needs_dx = x.requires_grad()](std::vector<Tensor> grads) mutable {
    Tensor input = kept.Take(context);
    if (remake) input = Cast(context, std::exchange(remake, {})(context), context.compute);
    Tensor dx;
    for (size_t i = layers.size(); i-- > 0;) {
      Tensor dy = std::move(grads[i]);
      LinearBackwardParameters(context, layers[i], needs_dx ? dy : std::move(dy),
                               i > 0 ? input : std::move(input), saved[i], !needs_dx);
      if (needs_dx) {
        const bool accumulate = static_cast<bool>(dx);
        if (!dx) dx = Activation(context, dtype, shape);
        LinearBackwardInput(context, layers[i], dy, saved[i], dx, accumulate, true);
      }
      DoneLinear(context, layers[i]);
    }
    return std::vector<Tensor>{std::move(dx)};
  };
  context.tape.Attach("linear", inputs, outputs, std::move(backward));
  return outputs;
}

}  // namespace hbmtune::lowering
