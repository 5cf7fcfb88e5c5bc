#include "kernels/lowering/hf/refuse.h"

#include <stdexcept>
#include <string>

#include "kernels/model/model_config.h"

namespace hbmtune::lowering {
namespace {

void Unless(bool holds, const std::string& why) {
  if (!holds) throw std::invalid_argument(why);
}

void RefuseWorkload(const Workload& w) {
  const std::string framework(Name(w.framework));
  Unless(w.framework != Framework::kFused, "framework fused has a lowering of its own");
  Unless(w.optimizer == Optimizer::kAdamw,
         "optimizer " + std::string(Name(w.optimizer)) + " is not modelled for " + framework +
             ": adamw is");
  Unless(w.sequences.layout == SequenceLayout::kFixed,
         "sequences.layout " + std::string(Name(w.sequences.layout)) +
             " is not modelled for " + framework + ": fixed is");
  Unless(w.seq_len >= 1, "seq_len must be at least 1");
  Unless(w.model.max_positions == 0 || w.seq_len <= w.model.max_positions,
         "seq_len " + std::to_string(w.seq_len) + " is longer than the model's " +
             std::to_string(w.model.max_positions) + " positions");
  Unless(w.model.sliding_window == 0 || w.seq_len <= w.model.sliding_window,
         "a sequence longer than sliding_window " + std::to_string(w.model.sliding_window) +
             " is not modelled for " + framework);
}

void RefuseDtypes(const TrainConfig& c, const std::string& framework) {
  const bool autocast = c.compute_dtype != c.param_dtype;
  Unless(!autocast || (c.param_dtype == Dtype::kF32 && IsHalf(c.compute_dtype)),
         "autocast needs param_dtype fp32 and compute_dtype bf16 or fp16");
  Unless(autocast || c.param_dtype != Dtype::kF16,
         "fp16 weights without autocast do not train in " + framework + ": use compute_dtype fp16 "
         "with param_dtype fp32");
  Unless(c.param_dtype == Dtype::kF32 || c.param_dtype == Dtype::kBf16,
         "param_dtype must be fp32 or bf16 for " + framework);
}

void RefuseConfig(const TrainConfig& c, const std::string& framework) {
  Unless(c.micro_batch >= 1 && c.grad_accum >= 1, "micro_batch and grad_accum must be at least 1");
  Unless(c.checkpoint.every <= 1 && c.checkpoint.attention == 0 && c.checkpoint.mlp == 0,
         framework + " checkpoints every layer or none (checkpoint.every 1 or 0)");
  Unless(c.loss_chunk_tokens == 0, framework + " has no loss_chunk_tokens");
  Unless(c.promotion.grad_norm_threshold == 0, framework + " has no promotion");
  Unless(c.offload.activations != ActivationOffload::kLayers,
         framework + " offloads checkpoints, not layers");
  Unless(c.offload.activations == ActivationOffload::kNone || c.checkpoint.every == 1,
         "offload.activations checkpoints wants checkpoint.every 1");
}

void RefuseDeepspeed(const TrainConfig& c, const std::string& framework) {
  Unless(IsHalf(c.compute_dtype) && c.param_dtype == c.compute_dtype,
         framework + " is modelled in bf16 and fp16: param_dtype and compute_dtype are the same");
  Unless(c.master_weights, framework + " keeps fp32 master_weights");
  Unless(c.zero.stage >= 0 && c.zero.stage <= 3,
         "zero.stage " + std::to_string(c.zero.stage) + " does not exist: 0 to 3 do");
  Unless(c.zero.stage > 0 || c.offload.optimizer == OptimizerOffload::kNone,
         framework + " offloads the optimizer with zero.stage 1 or higher");
  Unless(c.offload.optimizer != OptimizerOffload::kStream,
         framework + " offloads the optimizer as cpu_adam or not at all");
}

}  // namespace

void RefuseHf(const Workload& workload, const TrainConfig& config) {
  const std::string framework(Name(workload.framework));
  CheckModelSpec(workload.model);
  RefuseWorkload(workload);
  RefuseConfig(config, framework);
  if (UsesDeepspeed(workload.framework)) {
    RefuseDeepspeed(config, framework);
  } else {
    RefuseDtypes(config, framework);
    Unless(!config.master_weights, framework + " has no master_weights");
    Unless(config.zero.stage == 0, framework + " has no zero.stage");
    Unless(config.offload.optimizer == OptimizerOffload::kNone,
           framework + " has no offload.optimizer");
  }
}

}  // namespace hbmtune::lowering
