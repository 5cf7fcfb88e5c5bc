#pragma once

#include <set>
#include <string>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/program/program.h"

namespace hbmtune::lowering {

// What the workload leaves open; speed and memory do not depend on the numbers.
struct OptimizerSettings {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.9;  // SGD
};

struct FusedOptions {
  OptimizerSettings optimizer;
  int64_t rank = 0;
  // Tokens of every row, where rows are padded to fewer than seq_len; 0 for seq_len. What lives
  // between steps is the same for all of them.
  int64_t row_tokens = 0;
  // Device memory against which activation offload measures pressure, 0 for always too little.
  int64_t device_bytes = 0;
  // Gradients live from setup on as NAME.grad, and can be read after a step.
  bool keep_gradients = false;
  // Trained parameters that have an fp32 master and fp32 moments now, beside 16-bit weights without
  // (config.promotion). The Program is that of one such choice; step/promotion changes it.
  std::set<std::string> promoted;
  // A copy of the last micro-batch's logits [rows, vocab] stays as `logits`.
  bool keep_logits = false;
};

// Names of the parameters that are trained, in the model's order; adapters only, where there are.
std::vector<std::string> TrainedNames(const Workload& workload);

// This stack's own training step at its best, as a Program. The steady step is one optimizer step
// of config.grad_accum micro-batches. Named state: NAME.exp_avg, NAME.exp_avg_sq, NAME.master,
// with promotion NAME.part (what the optimizer updates of NAME), `loss` (mean over the
// micro-batches), `control` (ops/grad_norm), `step`; `loss_scale` with fp16, `random` where the
// model drops out.
// Throws std::invalid_argument with one sentence for what does not fit together.
Program LowerFused(const Workload& workload, const TrainConfig& config,
                   const FusedOptions& options = {});

}  // namespace hbmtune::lowering
