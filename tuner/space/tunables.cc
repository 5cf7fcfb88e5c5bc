#include "tuner/space/tunables.h"

#include <algorithm>
#include <iterator>

namespace hbmtune::tuner {
namespace {

bool Always(const Workload&, const TrainConfig&) { return true; }
bool Fused(Framework f) { return f == Framework::kFused; }
bool Transformers(Framework f) { return f != Framework::kFused; }
bool FusedOrDeepspeed(Framework f) { return Fused(f) || UsesDeepspeed(f); }
bool Deepspeed(Framework f) { return UsesDeepspeed(f); }
bool Any(Framework) { return true; }
bool FusedOrDdp(Framework f) { return Fused(f) || UsesDdp(f); }
bool NotDeepspeed(Framework f) { return Transformers(f) && !UsesDeepspeed(f); }

// A parallel block's attention and MLP read one norm: they are recomputed together or not at all.
bool SeparateIntervals(const Workload& w, const TrainConfig& c) {
  return c.checkpoint.every == 0 && !w.model.parallel_block;
}
bool AnyInterval(const Workload&, const TrainConfig& c) {
  return c.checkpoint.attention > 0 || c.checkpoint.mlp > 0;
}
bool EveryLayer(const Workload&, const TrainConfig& c) { return c.checkpoint.every == 1; }
// Whole layers are offloaded, or by Transformers the inputs that checkpointing keeps.
bool MayOffloadActivations(const Workload& w, const TrainConfig& c) {
  if (Fused(w.framework)) return c.checkpoint.attention == 0 && c.checkpoint.mlp == 0;
  return c.checkpoint.every == 1;
}
bool LayerOffload(const Workload&, const TrainConfig& c) {
  return c.offload.activations == ActivationOffload::kLayers;
}
bool AnyOffload(const Workload&, const TrainConfig& c) {
  return c.offload.activations != ActivationOffload::kNone ||
         c.offload.optimizer != OptimizerOffload::kNone;
}
bool Partitioned(const Workload&, const TrainConfig& c) { return c.zero.stage >= 1; }
bool PartitionedRanks(const Workload& w, const TrainConfig& c) {
  return c.zero.stage >= 1 && w.world_size > 1;
}
bool StageOneOrTwo(const Workload&, const TrainConfig& c) {
  return c.zero.stage == 1 || c.zero.stage == 2;
}
bool StageOneOrTwoRanks(const Workload& w, const TrainConfig& c) {
  return StageOneOrTwo(w, c) && w.world_size > 1;
}
bool StageThree(const Workload&, const TrainConfig& c) { return c.zero.stage == 3; }
bool MayPartition(const Workload& w, const TrainConfig& c) {
  return w.world_size > 1 ||
         (UsesDeepspeed(w.framework) && c.offload.optimizer != OptimizerOffload::kNone);
}
bool ReplicatedRanks(const Workload& w, const TrainConfig& c) {
  return w.world_size > 1 && c.zero.stage == 0;
}
bool Fp16(const Workload&, const TrainConfig& c) { return c.compute_dtype == Dtype::kF16; }
bool HalfCompute(const Workload&, const TrainConfig& c) { return IsHalf(c.compute_dtype); }
bool PureHalf(const Workload&, const TrainConfig& c) {
  return IsHalf(c.param_dtype) && !c.master_weights;
}
// The state of a promoted parameter becomes fp32, in device memory.
bool MayPromote(const Workload& w, const TrainConfig& c) {
  return PureHalf(w, c) && w.optimizer != Optimizer::kAdamw8bit &&
         c.offload.optimizer == OptimizerOffload::kNone;
}
bool Promotes(const Workload& w, const TrainConfig& c) {
  return MayPromote(w, c) && c.promotion.grad_norm_threshold > 0;
}
bool HasMoments(const Workload& w, const TrainConfig&) { return w.optimizer != Optimizer::kSgd; }

constexpr std::string_view kDs = "fused or a +deepspeed framework";
constexpr std::string_view kSeparate = "checkpoint.every 0 and a model without parallel blocks";
constexpr std::string_view kStage = "zero.stage 1 or higher";
constexpr std::string_view kStage3 = "zero.stage 3";
constexpr std::string_view kFp16Needs = "compute_dtype fp16";
constexpr std::string_view kPure =
    "16-bit param_dtype without master_weights, no adamw-8bit and offload.optimizer none";

constexpr Tunable kTunables[] = {
    {"fp32.norms", Fused, "fused", HalfCompute, "a 16-bit compute_dtype", false},
    {"fp32.softmax", Fused, "fused", HalfCompute, "a 16-bit compute_dtype", false},
    {"fp32.final_norm", Fused, "fused", HalfCompute, "a 16-bit compute_dtype", false},
    {"fp32.head", Fused, "fused", HalfCompute, "a 16-bit compute_dtype", false},
    {"loss_scale.initial", FusedOrDeepspeed, kDs, Fp16, kFp16Needs, true},
    {"loss_scale.window", FusedOrDeepspeed, kDs, Fp16, kFp16Needs, true},
    {"loss_scale.hysteresis", FusedOrDeepspeed, kDs, Fp16, kFp16Needs, true},
    {"loss_scale.min", FusedOrDeepspeed, kDs, Fp16, kFp16Needs, true},
    {"promotion.grad_norm_threshold", Fused, "fused", MayPromote, kPure, false},
    {"promotion.hysteresis_ratio", Fused, "fused", Promotes, "promotion.grad_norm_threshold", true},
    {"checkpoint.attention", Fused, "fused", SeparateIntervals, kSeparate, false},
    {"checkpoint.mlp", Fused, "fused", SeparateIntervals, kSeparate, false},
    {"checkpoint.keep_inputs", Fused, "fused", AnyInterval,
     "checkpoint.attention or checkpoint.mlp", true},
    {"checkpoint.reentrant", Transformers, "a hf framework", EveryLayer,
     "checkpoint.every 1", true},
    {"loss_chunk_tokens", Fused, "fused", Always, "", false},
    {"optimizer_loop", NotDeepspeed, "a hf framework without DeepSpeed", Always, "", false},
    {"offload.optimizer", FusedOrDeepspeed, kDs, HasMoments, "an optimizer with moments", false},
    {"offload.activations", Any, "", MayOffloadActivations,
     "checkpoint.every, not attention and MLP intervals", false},
    {"offload.keep_ratio", Fused, "fused", LayerOffload, "offload.activations layers", true},
    {"offload.pressure_ratio", Fused, "fused", LayerOffload, "offload.activations layers", true},
    {"offload.pool_bytes", Fused, "fused", AnyOffload, "something to offload", true},
    {"offload.double_buffer", Fused, "fused", AnyOffload, "something to offload", true},
    {"zero.stage", FusedOrDeepspeed, kDs, MayPartition,
     "world_size over 1 (or, with DeepSpeed, offload.optimizer)", false},
    {"zero.reduce_bucket_size", FusedOrDeepspeed, kDs, Partitioned, kStage, true},
    {"zero.allgather_bucket_size", FusedOrDeepspeed, kDs, StageOneOrTwoRanks,
     "zero.stage 1 or 2 and world_size over 1", true},
    {"zero.prefetch_bucket_size", FusedOrDeepspeed, kDs, StageThree, kStage3, true},
    {"zero.param_persistence_threshold", FusedOrDeepspeed, kDs, StageThree, kStage3, true},
    {"zero.max_live_parameters", FusedOrDeepspeed, kDs, StageThree, kStage3, true},
    {"zero.max_reuse_distance", FusedOrDeepspeed, kDs, StageThree, kStage3, true},
    {"zero.sub_group_size", FusedOrDeepspeed, kDs, StageThree, kStage3, true},
    {"zero.overlap_comm", FusedOrDeepspeed, kDs, PartitionedRanks,
     "zero.stage 1 or higher and world_size over 1", true},
    {"zero.contiguous_gradients", FusedOrDeepspeed, kDs, StageOneOrTwo, "zero.stage 1 or 2", true},
    {"zero.reduce_scatter", FusedOrDeepspeed, kDs, PartitionedRanks,
     "zero.stage 1 or higher and world_size over 1", true},
    {"zero.gather_16bit_weights_on_model_save", Deepspeed, "a +deepspeed framework", StageThree,
     kStage3, true},
    {"ddp.bucket_cap_mb", FusedOrDdp, "a +ddp framework", ReplicatedRanks,
     "world_size over 1 without ZeRO", true},
    {"ddp.gradient_as_bucket_view", Fused, "fused (Transformers' Trainer has no key for it)",
     ReplicatedRanks, "world_size over 1 without ZeRO", true},
};

// Intervals that leave at least two segments; 4 and 6 are what practitioners settled on by hand.
std::vector<Json> Intervals(int64_t layers, std::initializer_list<int64_t> wanted) {
  std::vector<Json> values = {0, 1};
  for (int64_t k : wanted) {
    if (2 * k <= layers) values.push_back(k);
  }
  return values;
}

// Precision changes what is learned, so only what is known to do no harm is searched: bf16 products
// over fp32 weights, and where the framework has it bf16 weights with fp32 masters, which is what
// DeepSpeed means by bf16-amp.
std::vector<Json> SearchedPrecisions(const Workload& w, const DeviceFacts& device) {
  if (UsesDeepspeed(w.framework)) return {"bf16-amp"};
  if (device.host) return {"fp32"};
  if (!Fused(w.framework)) {
    // Frozen weights take no update that could be rounded off, and PEFT keeps its adapters in fp32.
    return w.lora.rank > 0 ? std::vector<Json>{"bf16-amp", "bf16"} : std::vector<Json>{"bf16-amp"};
  }
  return {"bf16-amp", Json{{"param_dtype", "bf16"},
                           {"compute_dtype", "bf16"},
                           {"optimizer_state_dtype", "fp32"},
                           {"master_weights", true}}};
}

void AddOffloadAxes(const Workload& w, std::vector<Axis>& axes) {
  bool fused = Fused(w.framework);
  // An adapter's moments are a few MiB; only a whole model's are worth a trip to the host.
  if (w.lora.rank == 0 && w.optimizer == Optimizer::kAdamw) {
    axes.push_back({"offload.optimizer", fused ? std::vector<Json>{"none", "stream", "cpu_adam"}
                                               : std::vector<Json>{"none", "cpu_adam"}});
  }
  axes.push_back({"offload.activations", {"none", fused ? "layers" : "checkpoints"}});
  axes.push_back({"offload.pressure_ratio", {0.7, 0.5}, true});
}

void AddZeroAxes(std::vector<Axis>& axes) {
  axes.push_back({"zero.stage", {0, 1, 2, 3}});
  axes.push_back({"zero.overlap_comm", {false, true}, true});
  axes.push_back({"zero.reduce_bucket_size", {500'000'000, 200'000'000, 50'000'000}, true});
  axes.push_back({"zero.allgather_bucket_size", {500'000'000, 200'000'000}, true});
  axes.push_back({"zero.contiguous_gradients", {true, false}, true});
}

}  // namespace

std::span<const Tunable> Tunables() { return kTunables; }

bool Applies(std::string_view path, const Workload& workload, const TrainConfig& config) {
  for (const Tunable& tunable : kTunables) {
    if (tunable.path == path) {
      return tunable.framework_has(workload.framework) && tunable.applies(workload, config);
    }
  }
  return true;
}

bool DecidesOthers(std::string_view path) {
  constexpr std::string_view kDeciding[] = {
      "precision",         "checkpoint.every",    "checkpoint.attention", "checkpoint.mlp",
      "offload.optimizer", "offload.activations", "zero.stage", "promotion.grad_norm_threshold"};
  return std::find(std::begin(kDeciding), std::end(kDeciding), path) != std::end(kDeciding);
}

std::vector<Axis> DefaultAxes(const Workload& w, const DeviceFacts& device) {
  std::vector<Axis> axes;
  axes.push_back({"precision", SearchedPrecisions(w, device)});
  if (Fused(w.framework)) {
    axes.push_back({"checkpoint.every", Intervals(w.model.layers, {2, 4, 6, 8})});
    axes.push_back({"checkpoint.attention", Intervals(w.model.layers, {4})});
    axes.push_back({"checkpoint.mlp", Intervals(w.model.layers, {6})});
    axes.push_back({"checkpoint.keep_inputs", {true, false}, true});
  } else {
    axes.push_back({"checkpoint.every", {0, 1}});
  }
  if (FusedOrDeepspeed(w.framework)) {
    AddOffloadAxes(w, axes);
    if (!device.host) AddZeroAxes(axes);  // the host device trains on one rank
  }
  if (UsesDdp(w.framework)) axes.push_back({"ddp.bucket_cap_mb", {25, 100}, true});
  axes.push_back({"allocator.roundup_power2_divisions", {0, 4}, true});
  axes.push_back({"allocator.max_split_size_mb", {0, 128}, true});
  return axes;
}

}  // namespace hbmtune::tuner
