#include "tuner/verify/recording.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "kernels/model/model_config.h"

namespace hbmtune::tuner {
namespace {

// Far over what a recorded run has, so that a wrong number cannot take all memory.
constexpr int64_t kMostAllocations = 10'000'000;

constexpr auto kReplace = Json::error_handler_t::replace;

// The first of a value that is not what it must be, in ASCII.
std::string Shown(const Json& value) { return value.dump(-1, ' ', true, kReplace).substr(0, 40); }

// A key of an object; a missing one or one of another type is named.
template <class T>
T Get(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) {
    throw std::invalid_argument(std::string("the recording has no '") + key + "'");
  }
  try {
    return found->template get<T>();
  } catch (const Json::exception&) {
    throw std::invalid_argument(std::string("'") + key + "' of the recording is " +
                                Shown(*found));
  }
}

// A key whose value is one of `words`, which the error names.
std::string Word(const Json& object, const char* key,
                 std::initializer_list<std::string_view> words) {
  const auto text = Get<std::string>(object, key);
  std::string allowed;
  for (const std::string_view& word : words) {
    if (word == text) return text;
    if (&word != words.begin()) allowed += &word + 1 == words.end() ? " or " : ", ";
    allowed += word;
  }
  throw std::invalid_argument("the recording's " + std::string(key) + " " +
                              Json(text.substr(0, 40)).dump(-1, ' ', true, kReplace) +
                              " is not " + allowed);
}

// Keys that recordings from before they were known lack.
std::string WordOr(const Json& object, const char* key, const std::string& otherwise,
                   std::initializer_list<std::string_view> words) {
  return object.contains(key) ? Word(object, key, words) : otherwise;
}

Json Object(const Json& parent, const char* key) {
  Json value = Get<Json>(parent, key);
  if (value.is_object()) return value;
  throw std::invalid_argument(std::string("'") + key + "' of the recording is " + Shown(value) +
                              ", not an object");
}

Json List(const Json& parent, const char* key) {
  Json value = Get<Json>(parent, key);
  if (value.is_array()) return value;
  throw std::invalid_argument(std::string("'") + key + "' of the recording is " + Shown(value) +
                              ", not a list");
}

void ReadPrecision(const Json& spec, TrainConfig& config) {
  const auto precision = Word(spec, "precision", {"fp32", "bf16", "amp_bf16", "amp_fp16"});
  config.param_dtype = precision == "bf16" ? Dtype::kBf16 : Dtype::kF32;
  config.compute_dtype = precision == "fp32"       ? Dtype::kF32
                         : precision == "amp_fp16" ? Dtype::kF16
                                                   : Dtype::kBf16;
  config.optimizer_state_dtype = config.param_dtype;
}

void ReadWorkload(const Json& spec, Workload& w) {
  const bool ddp = WordOr(spec, "ddp", "none", {"none", "copy", "view"}) != "none";
  const bool sdpa = Word(spec, "attention", {"eager", "sdpa"}) == "sdpa";
  w.framework = ddp ? (sdpa ? Framework::kHfSdpaDdp : Framework::kHfEagerDdp)
                    : (sdpa ? Framework::kHfSdpa : Framework::kHfEager);
  w.seq_len = Get<int64_t>(spec, "seq");
  w.grad_clip = Get<double>(spec, "clip");
  const auto lora = Word(spec, "lora", {"none", "qv", "all"});
  if (lora != "none") {
    w.lora.rank = Get<int64_t>(spec, "lora_r");
    w.lora.dropout = Get<double>(spec, "lora_dropout");
    w.lora.targets = lora == "qv" ? "attention" : "all-linear";
  }
  w.model.dropout = w.model.attention_dropout = Get<double>(spec, "dropout");
}

void ReadSpec(const Json& spec, Recording& run) {
  ReadWorkload(spec, run.workload);
  TrainConfig& c = run.config;
  c.micro_batch = Get<int64_t>(spec, "batch");
  c.grad_accum = Get<int64_t>(spec, "accumulation");
  ReadPrecision(spec, c);
  const auto checkpoint = Word(spec, "checkpoint", {"none", "reentrant", "non_reentrant"});
  c.checkpoint.every = checkpoint == "none" ? 0 : 1;
  c.checkpoint.reentrant = checkpoint == "reentrant";
  if (spec.contains("checkpoint_offload") && Get<bool>(spec, "checkpoint_offload")) {
    c.offload.activations = ActivationOffload::kCheckpoints;
  }
  const auto optimizer =
      Word(spec, "optimizer", {"adamw_foreach", "adamw_loop", "adamw_fused"});
  if (UsesDdp(run.workload.framework)) {
    run.workload.world_size = 2;
    c.ddp.gradient_as_bucket_view = Get<std::string>(spec, "ddp") == "view";
    c.ddp.bucket_cap_mb = Get<int64_t>(spec, "bucket_mb");
    run.options.default_buckets = run.options.settle_buckets = false;
  }
  c.optimizer_loop = optimizer == "adamw_foreach" ? OptimizerLoop::kForeach
                     : optimizer == "adamw_loop"  ? OptimizerLoop::kForLoop
                                                  : OptimizerLoop::kFused;
  run.options.trainer_groups = Word(spec, "groups", {"trainer", "one"}) == "trainer";
  run.options.outputs_fp32 = Get<bool>(spec, "outputs_fp32");
  run.options.evaluate = true;
  // cuBLASLt's on an A100, taken and given back by each product.
  if (Get<bool>(spec, "workspace")) run.options.gpu.workspace_bytes = 8519680;
}

void ReadZero(const Json& spec, Recording& run) {
  run.workload.framework = UsesSdpa(run.workload.framework) ? Framework::kHfSdpaDeepspeed
                                                            : Framework::kHfEagerDeepspeed;
  run.workload.world_size = Get<int64_t>(spec, "world");
  run.options.rank = Get<int64_t>(spec, "rank");
  run.options.outputs_fp32 = false;
  run.options.save = true;
  run.options.zero_init = Get<bool>(spec, "zero_init");
  TrainConfig& c = run.config;
  const bool half = Word(spec, "dtype", {"bf16", "fp16"}) == "fp16";
  c.param_dtype = c.compute_dtype = half ? Dtype::kF16 : Dtype::kBf16;
  c.optimizer_state_dtype = Dtype::kF32;
  c.master_weights = true;
  ZeroConfig& z = c.zero;
  z.stage = Get<int64_t>(spec, "stage");
  const Json overlap = Get<Json>(spec, "overlap_comm");  // null: DeepSpeed's default
  z.overlap_comm = overlap.is_boolean() ? overlap.get<bool>() : z.stage == 3;
  z.contiguous_gradients = Get<bool>(spec, "contiguous_gradients");
  z.reduce_scatter = Get<bool>(spec, "reduce_scatter");
  z.reduce_bucket_size = Get<int64_t>(spec, "reduce_bucket_size");
  z.prefetch_bucket_size = Get<int64_t>(spec, "prefetch_bucket_size");
  z.param_persistence_threshold = Get<int64_t>(spec, "persistence_threshold");
  z.max_live_parameters = Get<int64_t>(spec, "max_live_parameters");
  z.max_reuse_distance = Get<int64_t>(spec, "max_reuse_distance");
  z.sub_group_size = Get<int64_t>(spec, "sub_group_size");
  const std::string offload = Word(spec, "offload", {"none", "optimizer", "optimizer+param"});
  if (offload == "optimizer+param") {
    throw std::invalid_argument("the offload of parameters is not modelled");
  }
  if (offload == "optimizer") c.offload.optimizer = OptimizerOffload::kCpuAdam;
}

// What a Program does not repeat: pauses between micro-steps, a third step.
bool IsLeftOut(const std::string& name, int64_t step, bool zero) {
  return name == "micro_step" || (zero && step > 2 && name != "eval" && name != "save");
}

MemoryEvent ReadEvent(const Json& event, const std::vector<std::string>& ops) {
  const bool numbers = event.is_array() && event.size() >= 3 && event[0].is_number_integer() &&
                       event[1].is_number_integer() && event[2].is_number_integer();
  if (!numbers) {
    throw std::invalid_argument("an event of the recording is " + Shown(event) +
                                ", not [bytes, op, allocation]");
  }
  const auto op = event[1].get<int64_t>();
  const auto allocation = event[2].get<int64_t>();
  if (op < 0 || op >= static_cast<int64_t>(ops.size()) || allocation < 0 ||
      allocation > kMostAllocations) {
    throw std::invalid_argument("an event of the recording names no op of its list: " +
                                Shown(event));
  }
  return {event[0].get<int64_t>(), allocation, ops[static_cast<size_t>(op)]};
}

void ReadOwners(const Json& categories, Recording& run) {
  for (const char* owner : {"parameter", "gradient", "optimizer", "master"}) {
    if (!categories.contains(owner)) continue;
    for (const Json& number : List(categories, owner)) {
      if (!number.is_number_unsigned()) {
        throw std::invalid_argument("an allocation of the recording's categories is " +
                                    Shown(number) + ", not its number");
      }
      const auto i = number.get<size_t>();
      if (i < run.owned.size()) run.owned[i] = true;
    }
  }
}

}  // namespace

Recording ReadRecording(const Json& run) {
  Recording result;
  result.name = Get<std::string>(run, "name");
  result.workload.model = ParseModelConfig(Get<Json>(run, "config").dump(), result.name);
  const Json spec = Object(run, "spec");
  const bool zero = spec.contains("stage");
  ReadSpec(zero ? Object(spec, "model") : spec, result);
  if (zero) {
    ReadZero(spec, result);
  } else {
    // Moved from the meta device, two modules that share a tensor get one each: a tied model was
    // recorded untied.
    result.workload.model.tied_embeddings = false;
  }
  const auto ops = Get<std::vector<std::string>>(run, "ops");
  int64_t allocations = 0;
  for (const Json& phase : List(run, "phases")) {
    PhaseEvents read{Get<std::string>(phase, "name"), Get<int64_t>(phase, "step"), {}};
    if (IsLeftOut(read.name, read.step, zero)) continue;
    for (const Json& event : List(phase, "events")) {
      read.events.push_back(ReadEvent(event, ops));
      allocations = std::max(allocations, read.events.back().allocation + 1);
    }
    result.phases.push_back(std::move(read));
  }
  result.owned.resize(static_cast<size_t>(allocations));
  ReadOwners(Object(run, "categories"), result);
  return result;
}

}  // namespace hbmtune::tuner
