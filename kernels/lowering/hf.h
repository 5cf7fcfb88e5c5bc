#pragma once

#include <optional>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/lowering/fused.h"
#include "kernels/program/program.h"

namespace hbmtune::lowering {

// What a GPU and its BLAS library have to do with the allocations of a step.
struct HfGpu {
  int64_t compute_units = 108;  // splits of large sums; the recordings' A100
  // Memory of the device, 0 for enough: DeepSpeed flattens parameters on the host if they do not
  // fit twice.
  int64_t capacity_bytes = 0;
  // What a product takes for itself: cuBLASLt's or hipBLASLt's workspace. Taken anew by each
  // product, or kept by each thread from its first one on.
  int64_t workspace_bytes = 0;
  bool keeps_workspace = false;
};

// What neither workload nor config says; the defaults are Trainer's.
struct HfOptions {
  HfGpu gpu;
  OptimizerSettings optimizer;
  // AdamW with norms and biases in a group of their own, without decay; else one group.
  bool trainer_groups = true;
  // accelerate's convert_outputs_to_fp32 around the forward pass: logits once more in fp32.
  // Nothing: as Trainer, with autocast only.
  std::optional<bool> outputs_fp32;
  int64_t rank = 0;
  // Stage 3 partitions each weight as it is created (deepspeed.zero.Init, as Trainer has it); else
  // the whole model is on the device first.
  bool zero_init = true;
  // DDP was not given its bucket_cap_mb: then its first bucket takes 1 MiB.
  bool default_buckets = true;
  // DDP makes its buckets anew in the second step: then two steps stand for the first, and the
  // steady one is the third. Without, it is the second, and not steady.
  bool settle_buckets = true;
  // The steady step ends with an evaluation of one micro-batch.
  bool evaluate = false;
  // Then stage 3 gathers its weights to save them (stage3_gather_16bit_weights_on_model_save); of
  // stage 3 an evaluation wants it, for it leaves weights whole.
  bool save = false;
};

// Transformers 5.24 on PyTorch 2.15, as a Program: the step of a Trainer-like loop with every
// allocation that the model, autograd, PEFT, autocast, clipping and AdamW make. Named state:
// NAME.exp_avg, NAME.exp_avg_sq and `loss` (of the last micro-batch, divided by the accumulation).
// Throws std::invalid_argument that names what is not modelled.
Program LowerHf(const Workload& workload, const TrainConfig& config, const HfOptions& options = {});
// The same in the memory of a Program that is no longer needed.
void LowerHf(const Workload& workload, const TrainConfig& config, const HfOptions& options,
             Program& program);

}  // namespace hbmtune::lowering
