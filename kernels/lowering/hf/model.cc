#include "kernels/lowering/hf/model.h"

#include "kernels/lowering/hf/weight_gatherer.h"

namespace hbmtune::lowering {

HfModel::HfModel(Aten& aten, const Workload& workload, const TrainConfig& config)
    : aten_(aten),
      workload_(workload),
      config_(config),
      model_(workload.model),
      builder_(aten, workload, config.param_dtype) {}

AttentionCall HfModel::Attention(double scale) const {
  return {scale, training_ ? model_.attention_dropout : 0, eager(),
          model_.heads / model_.kv_heads};
}

Tensor HfModel::Enter(const ModuleTag& module, Tensor input) {
  ModuleHooks* hooks = aten_.module_hooks();
  return hooks ? hooks->Enter({&module, {}}, std::move(input)) : input;
}

Tensor HfModel::Leave(const ModuleTag& module, Tensor out) {
  ModuleHooks* hooks = aten_.module_hooks();
  return hooks ? hooks->Leave({&module, {}}, std::move(out)) : out;
}

Tensor HfModel::Embed(const Tensor& ids, const Tensor& weight) {
  ModuleHooks* hooks = aten_.module_hooks();
  if (hooks) hooks->Enter({&weight, {weight}}, {});
  Tensor out = aten_.Embedding(ids, weight);
  const bool checkpoints = config_.checkpoint.every > 0;
  if (workload_.lora.rank > 0 && checkpoints && aten_.tape().grad_enabled()) {
    // A leaf of its own: it and its gradient live as long as the graph.
    out.set_requires_grad(true);
    embedding_leaf_ = out;
  }
  return hooks ? hooks->Leave({&weight, {weight}}, std::move(out)) : out;
}

Tensor HfModel::RunLayer(const std::shared_ptr<LayerInputs>& inputs, const Tensor& hidden,
                         const std::function<Tensor(const LayerInputs&, const Tensor&)>& layer) {
  if (config_.checkpoint.every == 0 || !training_) return layer(*inputs, hidden);
  const bool reentrant = config_.checkpoint.reentrant;
  if (reentrant && hidden.requires_grad()) {
    auto keywords = std::make_shared<LayerInputs>(*inputs);
    if (inputs->mask_by_position) keywords->mask = {};
    held_by_graph_.push_back(std::move(keywords));
  }
  const bool on_host = config_.offload.activations == ActivationOffload::kCheckpoints;
  const Tensor mask = inputs->mask_by_position ? inputs->mask : Tensor{};
  std::shared_ptr<LayerInputs> kept = inputs;
  if (on_host && mask) {  // its mask is an argument that leaves the device, too
    kept = std::make_shared<LayerInputs>(*inputs);
    kept->mask = {};
  }
  const Category before = aten_.category();
  Tensor out = aten_.Checkpoint(
      hidden,
      [kept, layer, on_host](Tensor x, const Tensor& also) {
        if (!on_host || !also) return layer(*kept, x);
        LayerInputs given = *kept;
        given.mask = also;
        return layer(given, x);
      },
      {reentrant, SecondOutput(), mask, on_host});
  aten_.set_category(before);
  return out;
}

// loss_utils.py, ForCausalLMLoss.
Tensor HfModel::LossOf(Tensor logits, const Tensor& labels) {
  const int64_t batch = labels.shape()[0], seq_len = labels.shape()[1];
  Tensor upcast = aten_.To(logits, Dtype::kF32);
  logits = std::move(upcast);
  Tensor padded = aten_.Full(Dtype::kI64, {batch, seq_len + 1}, -100);
  aten_.CopyInto(labels, aten_.tape().ViewOf(padded, labels.shape(), padded.strides()));
  Tensor shifted = aten_.Contiguous(aten_.Slice(padded, 1, 1, seq_len + 1));
  Tensor flat = aten_.View(shifted, {batch * seq_len});
  Tensor rows = aten_.View(logits, {batch * seq_len, model_.vocab});
  Tensor loss = aten_.CrossEntropy(rows, flat);
  rows = {};
  logits = {};
  padded = {};
  flat = {};
  shifted = {};
  return loss;
}

Tensor HfModel::Loss(const Tensor& ids, const Tensor& labels, bool outputs_fp32) {
  const bool autocast = config_.compute_dtype != config_.param_dtype;
  aten_.EnterAutocast(autocast ? std::optional(config_.compute_dtype) : std::nullopt);
  const bool peft = workload_.lora.rank > 0;
  if (peft) Enter(peft_model_, {});
  if (peft) Enter(lora_model_, {});
  Enter(causal_lm_, {});
  Tensor hidden = Hidden(ids);
  aten_.set_category(Category::kLogits);
  aten_.tape().Phase(PhaseKind::kLoss);
  Tensor logits = ApplyLinear(aten_, head_, hidden);
  Tensor loss = LossOf(logits, labels);
  loss = Leave(causal_lm_, std::move(loss));
  if (peft) loss = Leave(lora_model_, std::move(loss));
  if (peft) loss = Leave(peft_model_, std::move(loss));
  hidden = {};
  aten_.ExitAutocast();
  if (outputs_fp32) {
    Tensor wide = aten_.To(logits, Dtype::kF32);
    logits = std::move(wide);
  }
  logits = {};
  aten_.set_category(Category::kActivations);
  return loss;
}

}  // namespace hbmtune::lowering
