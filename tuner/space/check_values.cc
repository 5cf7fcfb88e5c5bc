#include <cmath>

#include "tuner/space/tunables.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

absl::Status AtLeast(std::string_view path, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return Illegal(path, " ", value, " is too small: it must be at least ", least);
}

absl::Status AtLeast(std::string_view path, double value, double least) {
  if (value >= least) return absl::OkStatus();
  return Illegal(path, " ", value, " is too small: it must be at least ", least);
}

template <class T>
absl::Status Within(std::string_view path, T value, double least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Illegal(path, " ", value, " must lie between ", least, " and ", most);
}

absl::Status First(std::initializer_list<absl::Status> checks) {
  for (const absl::Status& status : checks) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const Workload& w, const TrainConfig& c) {
  absl::Status status =
      First({Within("micro_batch", c.micro_batch, 1, kMostSequencesPerRank),
             Within("grad_accum", c.grad_accum, 1, kMostSequencesPerRank)});
  if (!status.ok() || w.global_batch == 0) return status;
  int64_t batch = c.micro_batch * c.grad_accum * w.world_size;
  if (batch == w.global_batch) return status;
  return Illegal("micro_batch ", c.micro_batch, " × grad_accum ", c.grad_accum, " × world_size ",
                 w.world_size, " is ", batch, " sequences, not the global_batch of ",
                 w.global_batch, ": change one of them");
}

absl::Status BadPrecision(const Workload& w, const TrainConfig& c, std::string_view remedy) {
  return Illegal("param_dtype ", Name(c.param_dtype), " with compute_dtype ",
                 Name(c.compute_dtype), ", optimizer_state_dtype ", Name(c.optimizer_state_dtype),
                 c.master_weights ? " and" : " and no", " master_weights is not what ",
                 Name(w.framework), " does: ", remedy);
}

absl::Status CheckDeepspeedPrecision(const Workload& w, const TrainConfig& c) {
  if (IsHalf(c.param_dtype) && c.compute_dtype == c.param_dtype && c.master_weights &&
      c.optimizer_state_dtype == Dtype::kF32) {
    return absl::OkStatus();
  }
  return BadPrecision(w, c, "use precision bf16-amp or fp16-amp (16-bit weights, fp32 masters)");
}

absl::Status CheckPrecision(const Workload& w, const TrainConfig& c) {
  if (UsesDeepspeed(w.framework)) return CheckDeepspeedPrecision(w, c);
  if (c.param_dtype == Dtype::kF32) {
    bool compute = c.compute_dtype == Dtype::kF32 || IsHalf(c.compute_dtype);
    if (compute && c.optimizer_state_dtype == Dtype::kF32 && !c.master_weights) {
      return absl::OkStatus();
    }
    return BadPrecision(w, c, "fp32 weights are their own masters and keep fp32 moments");
  }
  bool half = IsHalf(c.param_dtype) && c.compute_dtype == c.param_dtype;
  if (w.framework == Framework::kFused) {
    bool states = c.master_weights ? c.optimizer_state_dtype == Dtype::kF32
                                   : c.optimizer_state_dtype == Dtype::kF32 ||
                                         c.optimizer_state_dtype == c.param_dtype;
    if (half && states) return absl::OkStatus();
    return BadPrecision(w, c, "use precision fp32, fp16-amp, bf16-amp or bf16");
  }
  if (half && c.param_dtype == Dtype::kBf16 && !c.master_weights &&
      c.optimizer_state_dtype == Dtype::kBf16) {
    return absl::OkStatus();
  }
  return BadPrecision(w, c, "use precision fp32, fp16-amp, bf16-amp or bf16");
}

absl::Status CheckLossScale(const Workload& w, const TrainConfig& c) {
  absl::Status status = First({AtLeast("loss_scale.initial", c.loss_scale.initial, 1),
                               AtLeast("loss_scale.window", c.loss_scale.window, 1),
                               AtLeast("loss_scale.hysteresis", c.loss_scale.hysteresis, 1),
                               AtLeast("loss_scale.min", c.loss_scale.min, 1),
                               AtLeast("promotion.grad_norm_threshold",
                                       c.promotion.grad_norm_threshold, 0),
                               AtLeast("promotion.hysteresis_ratio",
                                       c.promotion.hysteresis_ratio, 1)});
  if (!status.ok() || !UsesDeepspeed(w.framework)) return status;
  int exponent = 0;
  if (std::frexp(c.loss_scale.initial, &exponent) == 0.5) return status;
  return Illegal("loss_scale.initial ", c.loss_scale.initial,
                 " is no power of two: DeepSpeed takes its exponent (initial_scale_power)");
}

absl::Status CheckCheckpoint(const Workload& w, const TrainConfig& c) {
  int64_t layers = w.model.layers;
  absl::Status status = First({Within("checkpoint.every", c.checkpoint.every, 0, layers),
                               Within("checkpoint.attention", c.checkpoint.attention, 0, layers),
                               Within("checkpoint.mlp", c.checkpoint.mlp, 0, layers)});
  if (!status.ok()) return status;
  if (w.framework != Framework::kFused && c.checkpoint.every > 1) {
    return Illegal("checkpoint.every ", c.checkpoint.every, ": ", Name(w.framework),
                   " recomputes every layer or none; use 0 or 1, or the framework fused");
  }
  return status;
}

absl::Status CheckOffload(const Workload& w, const TrainConfig& c) {
  const OffloadConfig& o = c.offload;
  bool deepspeed = UsesDeepspeed(w.framework);
  if (deepspeed && o.optimizer == OptimizerOffload::kStream) {
    return Illegal("offload.optimizer stream: DeepSpeed steps on the CPU; use cpu_adam");
  }
  if (deepspeed && o.optimizer != OptimizerOffload::kNone && c.zero.stage == 0) {
    return Illegal("offload.optimizer cpu_adam needs zero.stage 1 or higher with DeepSpeed");
  }
  if (o.optimizer == OptimizerOffload::kCpuAdam && w.optimizer != Optimizer::kAdamw) {
    return Illegal("offload.optimizer cpu_adam steps AdamW on the CPU, not ", Name(w.optimizer),
                   ": use optimizer adamw");
  }
  const bool fused = w.framework == Framework::kFused;
  if (!fused && o.activations == ActivationOffload::kLayers) {
    return Illegal("offload.activations layers is fused's; Transformers offloads checkpoints");
  }
  if (fused && o.activations == ActivationOffload::kCheckpoints) {
    return Illegal("offload.activations checkpoints is Transformers'; fused offloads layers");
  }
  return absl::OkStatus();
}

absl::Status CheckZero(const TrainConfig& c) {
  const ZeroConfig& z = c.zero;
  if (z.stage < 0 || z.stage > 3) {
    return Illegal("zero.stage ", z.stage, " does not exist: stages are 0 to 3");
  }
  return First(
      {AtLeast("zero.reduce_bucket_size", z.reduce_bucket_size, 1),
       AtLeast("zero.allgather_bucket_size", z.allgather_bucket_size, 1),
       AtLeast("zero.prefetch_bucket_size", z.prefetch_bucket_size, 0),
       AtLeast("zero.param_persistence_threshold", z.param_persistence_threshold, 0),
       AtLeast("zero.max_live_parameters", z.max_live_parameters, 0),
       AtLeast("zero.max_reuse_distance", z.max_reuse_distance, 0),
       AtLeast("zero.sub_group_size", z.sub_group_size, 1),
       AtLeast("ddp.bucket_cap_mb", c.ddp.bucket_cap_mb, 1)});
}

absl::Status CheckAllocator(const AllocatorTunables& a) {
  int64_t divisions = a.roundup_power2_divisions;
  if (divisions < 0 || divisions > 64 || (divisions & (divisions - 1)) != 0) {
    return Illegal("allocator.roundup_power2_divisions ", divisions,
                   " must be a power of two up to 64, or 0 for off");
  }
  if (a.max_split_size_mb != 0 && a.max_split_size_mb <= 20) {
    return Illegal("allocator.max_split_size_mb ", a.max_split_size_mb,
                   " must be over 20, which PyTorch demands, or 0 for no limit");
  }
  if (!(a.garbage_collection_threshold >= 0 && a.garbage_collection_threshold < 1)) {
    return Illegal("allocator.garbage_collection_threshold ", a.garbage_collection_threshold,
                   " must be under 1, or 0 for off");
  }
  return absl::OkStatus();
}

absl::Status CheckKernels(const Workload& w, const TrainConfig& c) {
  bool materialised = c.attention == AttentionKind::kMaterialised;
  if (w.framework != Framework::kFused && materialised == UsesSdpa(w.framework)) {
    return Illegal("attention ", Name(c.attention), " is not what ", Name(w.framework),
                   " does: its attention is ", materialised ? "tiled" : "materialised");
  }
  if (w.framework != Framework::kFused && c.optimizer_loop == OptimizerLoop::kForLoop) {
    return Illegal("optimizer_loop for-loop: Transformers' Trainer has no key for it; use fused "
                   "or foreach");
  }
  return First({AtLeast("loss_chunk_tokens", c.loss_chunk_tokens, 0),
                AtLeast("cleanup_every_steps", c.cleanup_every_steps, 0)});
}

}  // namespace

absl::Status CheckLimits(const TrainConfig& c) {
  absl::Status status = First({Within("offload.keep_ratio", c.offload.keep_ratio, 0, 0.5),
                               Within("offload.pressure_ratio", c.offload.pressure_ratio, 0, 1.0),
                               AtLeast("offload.pool_bytes", c.offload.pool_bytes, 0)});
  if (status.ok()) status = CheckZero(c);
  if (status.ok()) status = CheckAllocator(c.allocator);
  return status;
}

absl::Status CheckValues(const Workload& w, const TrainConfig& c) {
  absl::Status status = CheckBatch(w, c);
  if (status.ok()) status = CheckPrecision(w, c);
  if (status.ok()) status = CheckLossScale(w, c);
  if (status.ok()) status = CheckCheckpoint(w, c);
  if (status.ok()) status = CheckOffload(w, c);
  if (status.ok()) status = CheckLimits(c);
  if (status.ok()) status = CheckKernels(w, c);
  return status;
}

}  // namespace hbmtune::tuner
