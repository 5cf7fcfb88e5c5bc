#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// A linear layer of the model with what hangs on it; null where it has none.
struct LinearLayer {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  Parameter* lora_a = nullptr;
  Parameter* lora_b = nullptr;
  int64_t site = 0;          // of the adapter's dropout, within the layer
  bool weight_in_out = false;  // GPT-2 keeps [in, out]

  bool trainable() const;
  int64_t outputs() const;
};

// The layer whose weight is `prefix`.weight.
LinearLayer FindLinear(Context& context, const std::string& prefix);

// What the passes over one layer leave for each other, beside x. Empty without an adapter.
struct LinearSaved {
  Tensor low_rank;           // A·x [rows, rank]
  Tensor low_rank_gradient;  // the same of its gradient, once one half of the backward pass made it
  Tensor key;                // of the adapter's dropout
};

// y = x·Wᵀ + bias (+ adapter), not recorded: for use inside larger functions.
Tensor LinearForward(Context& context, const LinearLayer& layer, const Tensor& x,
                     LinearSaved& saved, Category category = Category::kActivations);

// The two halves of the backward pass, in either order; `last` says that the other has run or
// will not. What a half was given for good (moved in) ends with its last use.
void LinearBackwardParameters(Context& context, const LinearLayer& layer, Tensor dy, Tensor x,
                              LinearSaved& saved, bool last);
// dx = or += the layer's input gradient.
void LinearBackwardInput(Context& context, const LinearLayer& layer, const Tensor& dy,
                         LinearSaved& saved, const Tensor& dx, bool accumulate, bool last);
void UseLinear(Context& context, const LinearLayer& layer);
void DoneLinear(Context& context, const LinearLayer& layer);
// The tensors that a node over this layer depends on.
void AppendParameters(const LinearLayer& layer, std::vector<Tensor>& inputs);

// One or more layers over the same x, as one node: their input gradients are summed in place. With
// `remake` x is made again in the backward pass; else it is kept, if a layer trains.
std::vector<Tensor> LinearGroup(Context& context, const Tensor& x,
                                const std::vector<LinearLayer>& layers,
                                Category category = Category::kActivations, Remake remake = {});

}  // namespace hbmtune::lowering
