#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/core/dtype.h"
#include "kernels/core/visit.h"

namespace hbmtune {

enum class OptimizerOffload : uint8_t { kNone, kStream, kCpuAdam };
template <>
struct EnumNames<OptimizerOffload> {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "stream", "cpu_adam"};
};

// `layers`: saved activations of the middle layers, by the plan of the dry run (fused).
// `checkpoints`: the checkpointed inputs only (DeepSpeed's cpu_checkpointing).
enum class ActivationOffload : uint8_t { kNone, kLayers, kCheckpoints };
template <>
struct EnumNames<ActivationOffload> {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "layers", "checkpoints"};
};

enum class AttentionKind : uint8_t { kTiled, kMaterialised };
template <>
struct EnumNames<AttentionKind> {
  static constexpr std::array<std::string_view, 2> kNames = {"tiled", "materialised"};
};

// How PyTorch steps AdamW; `fused` is also what the stack of our own does.
enum class OptimizerLoop : uint8_t { kFused, kForeach, kForLoop };
template <>
struct EnumNames<OptimizerLoop> {
  static constexpr std::array<std::string_view, 3> kNames = {"fused", "foreach", "for-loop"};
};

// Whole layers every `every` (0: none); or attention and MLP blocks at their own intervals.
struct CheckpointConfig {
  int64_t every = 0;
  int64_t attention = 0;
  int64_t mlp = 0;
  bool keep_inputs = true;
  bool reentrant = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"every", "recompute whole layers, storing one input every so many layers; 0 for none"},
      self.every);
    v(Field{"attention", "recompute attention blocks, one input stored every so many; 0 for none"},
      self.attention);
    v(Field{"mlp", "recompute MLP blocks, one input stored every so many; 0 for none"}, self.mlp);
    v(Field{"keep_inputs", "keep the inputs of recomputed blocks rather than recompute them too"},
      self.keep_inputs);
    v(Field{"reentrant", "PyTorch's reentrant checkpointing (Transformers only)"}, self.reentrant);
  }
};

// What stays in fp32 under mixed precision (the practitioners' level 2).
struct Fp32Islands {
  bool norms = false;
  bool softmax = true;
  bool final_norm = false;
  bool head = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"norms", "norms of the layers compute in fp32"}, self.norms);
    v(Field{"softmax", "attention softmax computes in fp32"}, self.softmax);
    v(Field{"final_norm", "the final norm computes in fp32"}, self.final_norm);
    v(Field{"head", "the output head computes in fp32"}, self.head);
  }
};

// Dynamic loss scaling for fp16: PyTorch's GradScaler plus DeepSpeed's hysteresis and floor.
struct LossScaleConfig {
  double initial = 65536;
  int64_t window = 2000;
  int64_t hysteresis = 1;
  double min = 1;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"initial", "first loss scale"}, self.initial);
    v(Field{"window", "steps without overflow before the scale doubles"}, self.window);
    v(Field{"hysteresis", "overflows in a row before the scale halves"}, self.hysteresis);
    v(Field{"min", "least loss scale"}, self.min);
  }
};

// Dynamic precision for pure 16-bit weights (the practitioners' level 3).
struct PromotionConfig {
  double grad_norm_threshold = 0;
  double hysteresis_ratio = 2;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"grad_norm_threshold",
            "a parameter whose gradient norm falls under this gets fp32 master weights; 0 for off"},
      self.grad_norm_threshold);
    v(Field{"hysteresis_ratio", "it goes back when its norm is over threshold times this"},
      self.hysteresis_ratio);
  }
};

struct OffloadConfig {
  OptimizerOffload optimizer = OptimizerOffload::kNone;
  ActivationOffload activations = ActivationOffload::kNone;
  double keep_ratio = 0.1;
  double pressure_ratio = 0.7;
  int64_t pool_bytes = 0;
  bool double_buffer = true;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"optimizer", "optimizer state in host memory: none, stream or cpu_adam"},
      self.optimizer);
    v(Field{"activations", "activations in host memory: none, layers or checkpoints"},
      self.activations);
    v(Field{"keep_ratio", "share of the layers at each end whose activations stay"},
      self.keep_ratio);
    v(Field{"pressure_ratio", "memory pressure over which a middle layer is offloaded"},
      self.pressure_ratio);
    v(Field{"pool_bytes", "pinned host pool, 0 for what the plan needs"}, self.pool_bytes);
    v(Field{"double_buffer", "copies overlap with compute"}, self.double_buffer);
  }
};

// DeepSpeed's keys; defaults of DeepSpeed 0.19. Bucket sizes count elements.
struct ZeroConfig {
  int64_t stage = 0;
  int64_t reduce_bucket_size = 500'000'000;
  int64_t allgather_bucket_size = 500'000'000;
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  int64_t sub_group_size = 1'000'000'000;
  bool overlap_comm = false;
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool gather_16bit_weights_on_model_save = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"stage", "what is partitioned over the ranks: 1 optimizer, 2 gradients, 3 weights"},
      self.stage);
    v(Field{"reduce_bucket_size", "elements of a gradient bucket"}, self.reduce_bucket_size);
    v(Field{"allgather_bucket_size", "elements of an all-gather bucket"},
      self.allgather_bucket_size);
    v(Field{"prefetch_bucket_size", "elements fetched ahead (stage 3)"},
      self.prefetch_bucket_size);
    v(Field{"param_persistence_threshold", "parameters under this many elements stay (stage 3)"},
      self.param_persistence_threshold);
    v(Field{"max_live_parameters", "most gathered elements alive (stage 3)"},
      self.max_live_parameters);
    v(Field{"max_reuse_distance", "gathered elements stay if reused within so many (stage 3)"},
      self.max_reuse_distance);
    v(Field{"sub_group_size", "elements that one optimizer sub-step takes (stage 3)"},
      self.sub_group_size);
    v(Field{"overlap_comm", "reduce while the backward pass goes on"}, self.overlap_comm);
    v(Field{"contiguous_gradients", "gradients are copied into one bucket buffer"},
      self.contiguous_gradients);
    v(Field{"reduce_scatter", "reduce-scatter rather than all-reduce"}, self.reduce_scatter);
    v(Field{"gather_16bit_weights_on_model_save",
            "a saved model has its whole weights, gathered module by module (stage 3)"},
      self.gather_16bit_weights_on_model_save);
  }
};

struct DdpConfig {
  int64_t bucket_cap_mb = 25;
  bool gradient_as_bucket_view = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"bucket_cap_mb", "MiB of a gradient bucket"}, self.bucket_cap_mb);
    v(Field{"gradient_as_bucket_view", "gradients live inside the buckets"},
      self.gradient_as_bucket_view);
  }
};

// PyTorch's allocator settings (PYTORCH_HIP_ALLOC_CONF); 0 or false is PyTorch's default.
struct AllocatorTunables {
  int64_t roundup_power2_divisions = 0;
  int64_t max_split_size_mb = 0;
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"roundup_power2_divisions", "sizes are rounded to so many steps per power of two"},
      self.roundup_power2_divisions);
    v(Field{"max_split_size_mb", "blocks over so many MiB are not split"},
      self.max_split_size_mb);
    v(Field{"garbage_collection_threshold", "share of memory over which old blocks are freed"},
      self.garbage_collection_threshold);
    v(Field{"expandable_segments", "segments grow in place"}, self.expandable_segments);
  }
};

// One choice of every tunable. What a framework does not have keeps its default.
struct TrainConfig {
  int64_t micro_batch = 1;
  int64_t grad_accum = 1;
  Dtype param_dtype = Dtype::kF32;
  Dtype compute_dtype = Dtype::kF32;
  Dtype optimizer_state_dtype = Dtype::kF32;
  bool master_weights = false;
  Fp32Islands fp32;
  LossScaleConfig loss_scale;
  PromotionConfig promotion;
  CheckpointConfig checkpoint;
  AttentionKind attention = AttentionKind::kTiled;
  int64_t loss_chunk_tokens = 0;
  OptimizerLoop optimizer_loop = OptimizerLoop::kFused;
  OffloadConfig offload;
  ZeroConfig zero;
  DdpConfig ddp;
  AllocatorTunables allocator;
  int64_t cleanup_every_steps = 0;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"micro_batch", "sequences in one forward pass of one rank"}, self.micro_batch);
    v(Field{"grad_accum", "micro-batches in one optimizer step"}, self.grad_accum);
    v(Field{"param_dtype", "dtype of the weights: fp32, bf16 or fp16"}, self.param_dtype);
    v(Field{"compute_dtype", "dtype of the products; other than param_dtype is autocast"},
      self.compute_dtype);
    v(Field{"optimizer_state_dtype", "dtype of the optimizer's moments"},
      self.optimizer_state_dtype);
    v(Field{"master_weights", "fp32 copies of 16-bit weights in the optimizer"},
      self.master_weights);
    v(Field{"fp32", "what stays in fp32 under mixed precision"}, self.fp32);
    v(Field{"loss_scale", "dynamic loss scaling (fp16)"}, self.loss_scale);
    v(Field{"promotion", "fp32 masters for parameters with small gradients"}, self.promotion);
    v(Field{"checkpoint", "activation recomputation"}, self.checkpoint);
    v(Field{"attention", "attention kernel: tiled or materialised"}, self.attention);
    v(Field{"loss_chunk_tokens", "tokens whose logits exist at once, 0 for all"},
      self.loss_chunk_tokens);
    v(Field{"optimizer_loop", "how the optimizer steps: fused, foreach or for-loop"},
      self.optimizer_loop);
    v(Field{"offload", "what lives in host memory"}, self.offload);
    v(Field{"zero", "partitioning over the ranks, with DeepSpeed's keys"}, self.zero);
    v(Field{"ddp", "PyTorch's DistributedDataParallel"}, self.ddp);
    v(Field{"allocator", "PyTorch's caching allocator"}, self.allocator);
    v(Field{"cleanup_every_steps", "release cached memory every so many steps, 0 for never"},
      self.cleanup_every_steps);
  }
};

}  // namespace hbmtune
