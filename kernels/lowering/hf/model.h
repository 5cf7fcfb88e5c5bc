#pragma once

#include <memory>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/lowering/hf/modules.h"

namespace hbmtune::lowering {

// What is the same in every Transformers model for causal language modelling: parameters, the
// loop over layers with its checkpointing, head and loss.
class HfModel {
 public:
  HfModel(Aten& aten, const Workload& workload, const TrainConfig& config);
  virtual ~HfModel() = default;
  HfModel(const HfModel&) = delete;
  HfModel& operator=(const HfModel&) = delete;

  // model.train() or .eval(): dropout and checkpointing are for training only.
  void set_training(bool training) {
    training_ = training;
    aten_.set_training(training);
  }
  // One forward pass; `outputs_fp32` is accelerate's wrapper. Returns the loss; labels and ids
  // belong to the caller.
  Tensor Loss(const Tensor& ids, const Tensor& labels, bool outputs_fp32);
  std::vector<HfParameter>& parameters() { return builder_.parameters(); }
  const std::vector<Tensor>& buffers() const { return builder_.buffers(); }
  // The backward pass is over and Python drops the loss: what only the graph still held goes.
  void ReleaseGraph() {
    held_by_graph_.clear();
    embedding_leaf_ = {};
  }

 protected:
  // The hidden state behind the last norm.
  virtual Tensor Hidden(const Tensor& ids) = 0;
  // Where a layer leaves a second output, or null.
  virtual Tensor* SecondOutput() { return nullptr; }
  // The embedding; with LoRA and checkpointing enable_input_require_grads hooks it.
  Tensor Embed(const Tensor& ids, const Tensor& weight);
  // One decoder layer through checkpointing where it is on.
  Tensor RunLayer(const std::shared_ptr<LayerInputs>& inputs, const Tensor& hidden,
                  const std::function<Tensor(const LayerInputs&, const Tensor&)>& layer);

  // Of modules that only contain others, or have no parameters.
  Tensor Enter(const ModuleTag& module, Tensor input);
  Tensor Leave(const ModuleTag& module, Tensor out);

  AttentionCall Attention(double scale) const;
  double dropout() const { return training_ ? workload_.model.dropout : 0; }
  bool eager() const { return !UsesSdpa(workload_.framework); }

  Aten& aten_;
  const Workload& workload_;
  const TrainConfig& config_;
  const ModelSpec& model_;
  ModuleBuilder builder_;
  LinearModule head_;
  bool training_ = true;

 private:
  Tensor LossOf(Tensor logits, const Tensor& labels);

  std::vector<std::shared_ptr<LayerInputs>> held_by_graph_;
  Tensor embedding_leaf_;
  ModuleTag causal_lm_, lora_model_, peft_model_;
};

// llama.cc (Llama, Mistral, Qwen2), gpt2.cc, falcon.cc: allocates the parameters.
std::unique_ptr<HfModel> MakeLlama(Aten& aten, const Workload& workload, const TrainConfig& config);
std::unique_ptr<HfModel> MakeGpt2(Aten& aten, const Workload& workload, const TrainConfig& config);
std::unique_ptr<HfModel> MakeFalcon(Aten& aten, const Workload& workload,
                                    const TrainConfig& config);

}  // namespace hbmtune::lowering
