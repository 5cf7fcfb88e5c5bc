#include "kernels/lowering/fused.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/lowering/fused/decoder.h"
#include "kernels/lowering/fused/optimizer.h"
#include "kernels/model/model_config.h"
#include "kernels/ops/fill/fill.h"
#include "kernels/ops/table.h"

namespace hbmtune::lowering {
namespace {

[[noreturn]] void Refuse(const std::string& why) { throw std::invalid_argument(why); }

void AtLeast(int64_t least, int64_t value, const char* what) {
  if (value < least) {
    Refuse(std::string(what) + " must be at least " + std::to_string(least) + ", got " +
           std::to_string(value));
  }
}

void CheckBatch(const Workload& workload, const TrainConfig& config) {
  AtLeast(1, config.micro_batch, "micro_batch");
  AtLeast(1, config.grad_accum, "grad_accum");
  AtLeast(1, workload.world_size, "world_size");
  const int64_t product = config.micro_batch * config.grad_accum * workload.world_size;
  if (workload.global_batch != 0 && workload.global_batch != product) {
    Refuse("micro_batch × grad_accum × world_size is " + std::to_string(product) +
           ", but global_batch is " + std::to_string(workload.global_batch));
  }
}

void CheckSequence(const Workload& workload) {
  AtLeast(2, workload.seq_len, "seq_len");
  if (workload.seq_len > workload.model.max_positions) {
    Refuse("seq_len " + std::to_string(workload.seq_len) + " is over the " +
           std::to_string(workload.model.max_positions) + " positions of the model");
  }
  if (workload.model.architecture != Architecture::kGpt2 && workload.model.head_dim % 2 != 0) {
    Refuse("rotary positions need an even head_dim, got " +
           std::to_string(workload.model.head_dim));
  }
}

void CheckCheckpoint(const ModelSpec& model, const CheckpointConfig& checkpoint) {
  AtLeast(0, checkpoint.every, "checkpoint.every");
  AtLeast(0, checkpoint.attention, "checkpoint.attention");
  AtLeast(0, checkpoint.mlp, "checkpoint.mlp");
  if (checkpoint.every > 0 && (checkpoint.attention > 0 || checkpoint.mlp > 0)) {
    Refuse("checkpoint.every excludes checkpoint.attention and checkpoint.mlp");
  }
  if (model.parallel_block && (checkpoint.attention > 0 || checkpoint.mlp > 0)) {
    Refuse("attention and MLP of a parallel block cannot be recomputed apart; use "
           "checkpoint.every");
  }
  if (checkpoint.reentrant) Refuse("checkpoint.reentrant is Transformers' only");
}

void CheckAll(const Workload& workload, const TrainConfig& config) {
  if (workload.framework != Framework::kFused) {
    Refuse("the fused lowering cannot imitate " + std::string(Name(workload.framework)));
  }
  CheckModelSpec(workload.model);
  CheckBatch(workload, config);
  CheckSequence(workload);
  CheckCheckpoint(workload.model, config.checkpoint);
  AtLeast(0, config.loss_chunk_tokens, "loss_chunk_tokens");
}

// One optimizer step, from the first micro-batch to the updated weights.
void EmitStep(Context& context, OptimizerStep& optimizer, const Tensor& loss) {
  Tape& tape = context.tape;
  context.parameters.BeginStep();
  const Dims shape{context.batch, context.tokens};
  for (int64_t i = 0; i < context.config.grad_accum; ++i) {
    tape.Phase(PhaseKind::kForward);
    Tensor token_ids = tape.Empty(Dtype::kI64, shape, Category::kInputs);
    Tensor labels = tape.Empty(Dtype::kI64, shape, Category::kInputs);
    tape.Feed(token_ids, labels);
    Targets targets = MakeTargets(context, labels);
    labels = {};
    Tensor root = Decoder(context, std::move(token_ids), std::move(targets), loss, i == 0);
    tape.Phase(PhaseKind::kBackward);
    Tensor seed = tape.Detach(root);
    tape.Backward(std::move(root), std::move(seed));
    tape.RewindIds();
  }
  optimizer.Run();
  tape.ReadScalar(loss, ScalarSlot::kLoss);
}

}  // namespace

Program LowerFused(const Workload& workload, const TrainConfig& config,
                   const FusedOptions& options) {
  CheckAll(workload, config);
  Program program;
  auto tape_owner = std::make_unique<Tape>(program, ops::OpsForTape());
  Tape& tape = *tape_owner;
  tape.Phase(PhaseKind::kSetup);
  Parameters parameters(tape, workload, config);
  Context context{.tape = tape,
                  .workload = workload,
                  .config = config,
                  .parameters = parameters,
                  .compute = config.compute_dtype,
                  .batch = config.micro_batch,
                  .tokens = workload.seq_len};
  MakeRotaryTables(context);
  if (workload.model.dropout > 0 || workload.model.attention_dropout > 0 ||
      workload.lora.dropout > 0) {
    context.random = tape.Full(Dtype::kI64, {2}, 0, Category::kWeights);
    tape.NameState("random", context.random);
  }
  if (config.compute_dtype == Dtype::kF16) {
    context.loss_scale =
        tape.Full(Dtype::kF32, {1}, config.loss_scale.initial, Category::kOptimizer);
    tape.NameState("loss_scale", context.loss_scale);
  }
  Tensor loss = tape.Full(context.statistics(), {1}, 0, Category::kWorkspace);
  tape.NameState("loss", loss);
  if (options.keep_logits) {
    context.logits = tape.Empty(config.fp32.head ? context.statistics() : context.compute,
                                {context.rows(), workload.model.vocab}, Category::kLogits);
    tape.NameState("logits", context.logits);
  }
  if (options.keep_gradients) parameters.KeepGradients();
  OptimizerStep optimizer(context, options.optimizer);

  tape.BeginFirstStep();
  optimizer.CopyMasters();
  EmitStep(context, optimizer, loss);
  tape.BeginSteadyStep();
  EmitStep(context, optimizer, loss);
  tape_owner.reset();  // what lives between steps is not freed
  return program;
}

}  // namespace hbmtune::lowering
