#include "tuner/predict/sums.h"

#include <algorithm>
#include <numeric>

#include "kernels/model/parameters.h"

namespace hbmtune::predict {
namespace {

int64_t& At(ByCategory& sums, Category category) { return sums[static_cast<size_t>(category)]; }

// Everything the sums need, counted once. Sizes in elements or bytes, for one rank.
struct Facts {
  const Workload& workload;
  const TrainConfig& config;
  const ModelSpec& model = workload.model;
  int64_t parameters = ParameterCount(model);
  int64_t trained = workload.lora.rank > 0
                        ? ElementCount(LoraTable(model, workload.lora))
                        : parameters;
  int64_t ranks = std::max<int64_t>(1, workload.world_size);
  int64_t tokens = config.micro_batch * workload.seq_len;
  bool deepspeed = UsesDeepspeed(workload.framework);
  bool autocast = config.compute_dtype != config.param_dtype && !deepspeed;
  int64_t weight_bytes = SizeOf(deepspeed ? config.compute_dtype : config.param_dtype);
  bool offload = config.offload.optimizer != OptimizerOffload::kNone;
  int64_t shards = deepspeed && config.zero.stage > 0 ? ranks : 1;
  int64_t layer_linear = LayerLinear();

  int64_t LayerLinear() const {
    int64_t qkv = model.hidden * model.head_dim * (model.heads + 2 * model.kv_heads);
    int64_t out = model.heads * model.head_dim * model.hidden;
    bool gated = model.architecture != Architecture::kFalcon &&
                 model.architecture != Architecture::kGpt2;
    return qkv + out + (gated ? 3 : 2) * model.hidden * model.ffn;
  }
  bool materialised() const {
    return workload.framework == Framework::kFused
               ? config.attention == AttentionKind::kMaterialised
               : !UsesSdpa(workload.framework);
  }
};

// Saved bytes of one layer for one token; h hidden, kv key/value width, I inner, H heads, S
// sequence. Llama's forms; Falcon and GPT-2 save one norm's statistics and no gate.
int64_t LayerBytesPerToken(const Facts& f) {
  int64_t h = f.model.hidden, I = f.model.ffn, H = f.model.heads;
  int64_t kv = f.model.kv_heads * f.model.head_dim, S = f.workload.seq_len;
  bool eager = f.materialised();
  if (f.autocast) return 30 * h + 4 * kv + 8 * I + 4 * H + 8 + (eager ? 4 * h + 6 * H * S : 0);
  if (f.weight_bytes == 4) {
    return eager ? 40 * h + 16 * I + 4 * H * S + 8 : 32 * h + 8 * kv + 16 * I + 4 * H + 8;
  }
  return eager ? 24 * h + 8 * I + 6 * H * S + 8 : 20 * h + 4 * kv + 8 * I + 4 * H + 8;
}

int64_t LogitsBytes(const Facts& f) {
  int64_t tokens = f.tokens;
  if (f.workload.framework == Framework::kFused && f.config.loss_chunk_tokens > 0) {
    tokens = std::min(tokens, f.config.loss_chunk_tokens);
  }
  return tokens * f.model.vocab * 12;  // 16-bit or fp32 logits, their fp32 form, its gradient
}

int64_t CheckpointInterval(const CheckpointConfig& checkpoint) {
  if (checkpoint.every > 0) return checkpoint.every;
  return std::max(checkpoint.attention, checkpoint.mlp);
}

struct Activations {
  int64_t kept = 0;       // from forward to backward
  int64_t stored = 0;     // inputs of checkpointed blocks
  int64_t recomputed = 0;  // one segment while its backward runs
};
Activations SumActivations(const Facts& f) {
  int64_t layer = f.tokens * LayerBytesPerToken(f);
  int64_t cached_casts = f.autocast ? 2 * f.layer_linear * f.model.layers : 0;
  int64_t every = CheckpointInterval(f.config.checkpoint);
  if (every == 0) return {layer * f.model.layers + cached_casts, 0, 0};
  int64_t input = f.tokens * f.model.hidden * (f.autocast ? 4 : f.weight_bytes);
  int64_t segments = (f.model.layers + every - 1) / every;
  int64_t stored = f.config.offload.activations != ActivationOffload::kNone ? 2 * input
                                                                            : segments * input;
  return {cached_casts, stored, layer * std::min(every, f.model.layers)};
}

struct States {
  int64_t weights, gradients, optimizer, communication, host, step_temporary;
};

States DeepspeedStates(const Facts& f) {
  const ZeroConfig& zero = f.config.zero;
  States s{};
  bool half = f.weight_bytes == 2;
  int64_t state = (half ? 12 : 8) * f.trained / f.shards;
  s.weights = f.weight_bytes * f.parameters / (zero.stage == 3 ? f.ranks : 1);
  if (zero.stage == 3) {
    int64_t fetched = f.layer_linear + zero.prefetch_bucket_size;
    s.weights += f.weight_bytes * std::min({zero.max_live_parameters, fetched, f.parameters});
  }
  s.optimizer = f.offload ? 0 : state;
  s.host = f.offload ? state + 6 * f.trained / f.shards : 0;
  bool sharded_gradients = zero.stage >= 2;
  s.gradients = f.weight_bytes * f.trained / (sharded_gradients ? f.ranks : 1);
  if (f.offload && zero.stage >= 1) s.gradients = 0;
  if (zero.stage >= 1 && zero.contiguous_gradients) {
    int64_t bucket = std::min(zero.reduce_bucket_size, f.trained);
    s.communication = f.weight_bytes * bucket * (zero.overlap_comm ? 2 : 1);
  }
  s.step_temporary = f.offload || !half ? 0 : 4 * f.trained / f.shards;
  return s;
}

States PlainStates(const Facts& f) {
  States s{};
  s.weights = f.weight_bytes * f.parameters + (f.workload.lora.rank > 0 ? 4 * f.trained : 0);
  s.gradients = (f.workload.lora.rank > 0 ? 4 : f.weight_bytes) * f.trained;
  int64_t moment = f.workload.framework == Framework::kFused
                       ? SizeOf(f.config.optimizer_state_dtype)
                       : f.weight_bytes;
  int64_t state = 2 * moment * f.trained + (f.config.master_weights ? 4 * f.trained : 0);
  s.optimizer = f.offload ? 0 : state;
  s.host = f.offload ? state : 0;
  if (UsesDdp(f.workload.framework) && !f.config.ddp.gradient_as_bucket_view) {
    s.communication = s.gradients;
  }
  if (f.config.optimizer_loop == OptimizerLoop::kForeach) s.step_temporary = 4 * f.trained;
  return s;
}

}  // namespace

MemorySums SumMemory(const Workload& workload, const TrainConfig& config) {
  Facts f{workload, config};
  States states = f.deepspeed ? DeepspeedStates(f) : PlainStates(f);
  Activations act = SumActivations(f);
  int64_t logits = LogitsBytes(f);
  int64_t at_loss = act.kept + act.stored + logits;
  int64_t in_backward = act.kept + act.stored + act.recomputed + states.gradients +
                        states.communication;
  MemorySums sums;
  At(sums.peak, Category::kWeights) = states.weights;
  At(sums.peak, Category::kOptimizer) = states.optimizer;
  At(sums.peak, Category::kInputs) = f.tokens * 16;
  bool accumulated = config.grad_accum > 1;
  if (accumulated) at_loss += states.gradients;
  int64_t in_step = states.gradients + states.step_temporary;
  if (in_step > std::max(at_loss, in_backward)) {
    sums.phase = PhaseKind::kOptimizer;
    At(sums.peak, Category::kGradients) = states.gradients;
    At(sums.peak, Category::kStaging) = states.step_temporary;
  } else if (at_loss > in_backward) {
    sums.phase = PhaseKind::kLoss;
    At(sums.peak, Category::kGradients) = accumulated ? states.gradients : 0;
    At(sums.peak, Category::kActivations) = act.kept;
    At(sums.peak, Category::kCheckpoints) = act.stored;
    At(sums.peak, Category::kLogits) = logits;
  } else {
    At(sums.peak, Category::kGradients) = states.gradients;
    At(sums.peak, Category::kActivations) = act.kept + act.recomputed;
    At(sums.peak, Category::kCheckpoints) = act.stored;
    At(sums.peak, Category::kCommunication) = states.communication;
  }
  sums.peak_bytes = std::accumulate(sums.peak.begin(), sums.peak.end(), int64_t{0});
  sums.host_bytes = states.host;
  return sums;
}

double TimeSums::step() const { return std::max(device() + collectives + copies, launch); }

TimeSums SumTime(const Workload& workload, const TrainConfig& config,
                 const device::DeviceProfile& profile) {
  Facts f{workload, config};
  bool recomputes = CheckpointInterval(config.checkpoint) > 0;
  double passes = (workload.lora.rank > 0 ? 2 : 3) + (recomputes ? 1 : 0);
  double bandwidth = profile.memory_bytes_per_second.value * profile.memory_efficiency_ratio.value;
  Dtype dtype = config.compute_dtype;

  Cost product;
  product.kind = CostClass::kMatmul;
  product.m = f.tokens, product.n = f.model.hidden, product.k = f.model.hidden;
  product.flops = 2.0 * f.tokens * f.model.hidden * f.model.hidden;
  double per_flop = device::KernelSeconds(profile, "linear", product, dtype) / product.flops;
  double linear = 1.0 * f.layer_linear * f.model.layers + 1.0 * f.model.vocab * f.model.hidden;

  Cost attention;
  attention.kind = CostClass::kAttention;
  attention.flops = 2.0 * f.tokens * workload.seq_len * f.model.heads * f.model.head_dim;

  TimeSums t;
  double micro_steps = static_cast<double>(config.grad_accum);
  t.matmul = micro_steps * passes * 2.0 * f.tokens * linear * per_flop;
  t.attention = micro_steps * (passes + 0.5) * f.model.layers *
                device::KernelSeconds(profile, "attention_tiled", attention, dtype);
  // Each saved byte is written once and read twice; temporaries about double that.
  t.memory = micro_steps * passes * 2.0 * f.model.layers * f.tokens * LayerBytesPerToken(f) /
             bandwidth;
  double state_traffic = 28.0 * f.trained / f.shards;
  t.optimizer = f.offload ? f.trained / f.shards / profile.cpu_adam_parameters_per_second.value
                          : state_traffic / bandwidth;
  if (f.ranks > 1) {
    double bytes = 2.0 * f.weight_bytes * f.trained;
    if (config.zero.stage == 3) bytes += micro_steps * f.weight_bytes * f.parameters;
    t.collectives = bytes * (f.ranks - 1) / f.ranks / profile.collective_bytes_per_second.value;
  }
  if (f.offload) {
    double bytes = 1.0 * f.weight_bytes * f.trained / f.shards;
    t.copies = bytes / profile.device_to_host_bytes_per_second.value +
               bytes / profile.host_to_device_bytes_per_second.value;
  }
  double operations = workload.framework == Framework::kFused ? 20 : 60;  // a layer and pass
  t.launch = micro_steps * passes * f.model.layers * operations * profile.issue_seconds.value;
  return t;
}

}  // namespace hbmtune::predict
