#include "kernels/lowering/fused.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/lowering/fused/data_parallel.h"
#include "kernels/lowering/fused/decoder.h"
#include "kernels/lowering/fused/offload_plan.h"
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

void CheckOffload(const TrainConfig& config) {
  const OffloadConfig& offload = config.offload;
  if (offload.activations == ActivationOffload::kNone) return;
  if (config.checkpoint.attention > 0 || config.checkpoint.mlp > 0) {
    Refuse("activation offload goes with checkpoint.every or without checkpointing, not with "
           "checkpoint.attention or checkpoint.mlp");
  }
  if (offload.activations == ActivationOffload::kCheckpoints && config.checkpoint.every == 0) {
    Refuse("offload.activations checkpoints needs checkpoint.every");
  }
  if (offload.keep_ratio < 0 || offload.keep_ratio > 1) {
    Refuse("offload.keep_ratio must be between 0 and 1, got " +
           std::to_string(offload.keep_ratio));
  }
}

void CheckRanks(const Workload& workload, const TrainConfig& config, int64_t rank) {
  const ZeroConfig& zero = config.zero;
  AtLeast(1, workload.world_size, "world_size");
  AtLeast(0, zero.stage, "zero.stage");
  if (zero.stage > 3) Refuse("zero.stage must be 0, 1, 2 or 3, got " + std::to_string(zero.stage));
  AtLeast(1, zero.reduce_bucket_size, "zero.reduce_bucket_size");
  AtLeast(1, zero.allgather_bucket_size, "zero.allgather_bucket_size");
  AtLeast(0, zero.prefetch_bucket_size, "zero.prefetch_bucket_size");
  AtLeast(0, zero.max_live_parameters, "zero.max_live_parameters");
  AtLeast(0, zero.max_reuse_distance, "zero.max_reuse_distance");
  if (rank < 0 || rank >= workload.world_size) {
    Refuse("rank " + std::to_string(rank) + " is not one of " +
           std::to_string(workload.world_size));
  }
  if (workload.global_batch != 0 && workload.global_batch % workload.world_size != 0) {
    Refuse("world_size " + std::to_string(workload.world_size) + " does not divide global_batch " +
           std::to_string(workload.global_batch));
  }
}

void CheckPromotion(const Workload& workload, const TrainConfig& config) {
  const PromotionConfig& promotion = config.promotion;
  if (promotion.grad_norm_threshold == 0) return;
  if (!(promotion.grad_norm_threshold > 0) || !(promotion.hysteresis_ratio >= 1)) {
    Refuse("promotion.grad_norm_threshold must be at least 0 and promotion.hysteresis_ratio at "
           "least 1, got " + std::to_string(promotion.grad_norm_threshold) + " and " +
           std::to_string(promotion.hysteresis_ratio));
  }
  if (!IsHalf(config.param_dtype) || config.master_weights) {
    Refuse("promotion.grad_norm_threshold needs a 16-bit param_dtype without master_weights: " +
           std::string(Name(config.param_dtype)) +
           (config.master_weights ? " weights have masters" : " weights need none"));
  }
  if (config.offload.optimizer != OptimizerOffload::kNone) {
    Refuse("promotion.grad_norm_threshold needs the optimizer's state in device memory: "
           "offload.optimizer is " + std::string(Name(config.offload.optimizer)));
  }
  if (workload.optimizer == Optimizer::kAdamw8bit) {
    Refuse("promotion.grad_norm_threshold does not go with the adamw-8bit optimizer: its moments "
           "cannot become fp32; use adamw or sgd");
  }
}

void CheckAll(const Workload& workload, const TrainConfig& config, const FusedOptions& options) {
  if (workload.framework != Framework::kFused) {
    Refuse("the fused lowering cannot imitate " + std::string(Name(workload.framework)));
  }
  CheckModelSpec(workload.model);
  CheckRanks(workload, config, options.rank);
  CheckBatch(workload, config);
  CheckSequence(workload);
  if (options.row_tokens != 0) AtLeast(2, options.row_tokens, "row_tokens");
  if (options.row_tokens > workload.seq_len) {
    Refuse("rows of " + std::to_string(options.row_tokens) + " tokens are longer than seq_len " +
           std::to_string(workload.seq_len));
  }
  CheckCheckpoint(workload.model, config.checkpoint);
  CheckOffload(config);
  AtLeast(0, config.loss_chunk_tokens, "loss_chunk_tokens");
  CheckPromotion(workload, config);
}

// What lives beside weights and optimizer state; returns the loss.
Tensor MakeState(Context& context, const FusedOptions& options) {
  Tape& tape = context.tape;
  const ModelSpec& model = context.model();
  MakeRotaryTables(context);
  if (model.dropout > 0 || model.attention_dropout > 0 || context.workload.lora.dropout > 0) {
    context.random = tape.Full(Dtype::kI64, {2}, 0, Category::kWeights);
    tape.NameState("random", context.random);
  }
  if (context.compute == Dtype::kF16) {
    context.loss_scale =
        tape.Full(Dtype::kF32, {1}, context.config.loss_scale.initial, Category::kOptimizer);
    tape.NameState("loss_scale", context.loss_scale);
  }
  if (options.keep_logits) {
    context.logits =
        tape.Empty(context.config.fp32.head ? context.statistics() : context.compute,
                   {context.rows(), model.vocab}, Category::kLogits);
    tape.NameState("logits", context.logits);
  }
  if (options.keep_gradients) {
    if (context.data_parallel->partition().stage > 0) {
      Refuse("whole gradients cannot be kept under zero.stage " +
             std::to_string(context.config.zero.stage));
    }
    context.parameters.KeepGradients();
  }
  Tensor loss = tape.Full(context.statistics(), {1}, 0, Category::kWorkspace);
  tape.NameState("loss", loss);
  return loss;
}

// One optimizer step, from the first micro-batch to the updated weights.
void EmitStep(Context& context, OptimizerStep& optimizer, const Tensor& loss) {
  Tape& tape = context.tape;
  DataParallel& ranks = *context.data_parallel;
  const Dims shape{context.batch, context.tokens};
  for (int64_t i = 0; i < context.config.grad_accum; ++i) {
    tape.Phase(PhaseKind::kForward);
    ranks.BeginBackward(i + 1 == context.config.grad_accum);  // the loss begins it already
    Tensor token_ids = tape.Empty(Dtype::kI64, shape, Category::kInputs);
    Tensor labels = tape.Empty(Dtype::kI64, shape, Category::kInputs);
    tape.Feed(token_ids, labels);
    context.starts = DocumentStarts(context, labels);
    Targets targets = MakeTargets(context, labels);
    labels = {};
    Tensor root = Decoder(context, std::move(token_ids), std::move(targets), loss, i == 0);
    context.starts = {};
    tape.Phase(PhaseKind::kBackward);
    Tensor seed = tape.Detach(root);
    tape.Backward(std::move(root), std::move(seed));
    ranks.EndBackward();
    tape.RewindIds();
  }
  optimizer.Run();
  ranks.AllReduce(loss);
  tape.ReadScalar(loss, ScalarSlot::kLoss);
}

// What a first lowering finds out for the second.
struct DryRun {
  std::vector<size_t> unit_ends;  // positions in the Program
  GatherOrder gathers;
};

// The Program with these units' activations offloaded, and weights gathered in this order (stage
// 3). A dry run is told where the first micro-batch's units end, and the order of its gathers.
Program Build(const Workload& workload, const TrainConfig& config, const FusedOptions& options,
              const std::vector<bool>& away, const GatherOrder& gathers,
              DryRun* dry_run = nullptr) {
  Program program;
  auto tape_owner = std::make_unique<Tape>(program, ops::OpsForTape());
  Tape& tape = *tape_owner;
  tape.Phase(PhaseKind::kSetup);
  const Partition partition = PartitionOf(workload, config, options.rank);
  Parameters parameters(tape, workload, config, partition);
  ActivationMover offload(tape, config.offload, away);
  Context context{.tape = tape,
                  .workload = workload,
                  .config = config,
                  .parameters = parameters,
                  .compute = config.compute_dtype,
                  .batch = config.micro_batch,
                  .tokens = options.row_tokens > 0 ? options.row_tokens : workload.seq_len};
  DataParallel ranks(context, partition, gathers);
  context.data_parallel = &ranks;
  context.loss_factor =
      1.0 / static_cast<double>(config.grad_accum * workload.world_size);
  if (!away.empty()) context.offload = &offload;
  const Tensor loss = MakeState(context, options);
  OptimizerStep optimizer(context, options.optimizer, options.promoted);

  tape.BeginFirstStep();
  optimizer.CopyMasters();
  if (dry_run != nullptr) context.unit_ends = &dry_run->unit_ends;
  EmitStep(context, optimizer, loss);
  context.unit_ends = nullptr;
  if (dry_run != nullptr) dry_run->gathers = ranks.gathers();
  tape.BeginSteadyStep();
  EmitStep(context, optimizer, loss);
  tape_owner.reset();  // what lives between steps is not freed
  return program;
}

}  // namespace

std::vector<std::string> TrainedNames(const Workload& workload) {
  std::vector<ParameterEntry> table = LoraTable(workload.model, workload.lora);
  if (table.empty()) table = ParameterTable(workload.model);
  std::vector<std::string> names;
  for (const ParameterEntry& entry : table) names.push_back(entry.name);
  return names;
}

Program LowerFused(const Workload& workload, const TrainConfig& config,
                   const FusedOptions& options) {
  CheckAll(workload, config, options);
  DryRun dry_run;
  if (PartitionOf(workload, config, options.rank).stage == 3) {
    TrainConfig once = config;
    once.grad_accum = 1;
    Build(workload, once, options, {}, {}, &dry_run);
  }
  const GatherOrder gathers = std::move(dry_run.gathers);
  std::vector<int64_t> allocated;
  if (config.offload.activations == ActivationOffload::kLayers && options.device_bytes > 0) {
    dry_run = {};
    const Program program = Build(workload, config, options, {}, gathers, &dry_run);
    dry_run.unit_ends.resize(OffloadUnits(workload, config));
    allocated = AllocatedAt(program, dry_run.unit_ends);
  }
  return Build(workload, config, options,
               PlanOffload(workload, config, allocated, options.device_bytes), gathers);
}

}  // namespace hbmtune::lowering
