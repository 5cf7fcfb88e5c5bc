#include "tuner/recommend/describe.h"

#include <algorithm>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "tuner/space/space.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string BatchText(const TrainConfig& c) {
  if (c.grad_accum == 1) return Text("micro-batch ", c.micro_batch);
  return Text("micro-batch ", c.micro_batch, " × accumulation ", c.grad_accum);
}

std::string Interval(std::string_view block, int64_t every) {
  return every == 1 ? Text("every ", block) : Text("one ", block, " in ", every);
}

std::string CheckpointText(const TrainConfig& c) {
  const CheckpointConfig& k = c.checkpoint;
  if (k.every == 1) return "checkpoint every layer";
  if (k.every > 1) return Text("checkpoint every ", k.every, " layers");
  if (k.attention == 0 && k.mlp == 0) return "no checkpointing";
  std::string text = "checkpoint ";
  if (k.attention > 0) text += Interval("attention block", k.attention);
  if (k.attention > 0 && k.mlp > 0) text += " and ";
  return k.mlp > 0 ? text + Interval("MLP block", k.mlp) : text;
}

std::string PrecisionText(const TrainConfig& c) {
  const bool autocast = c.param_dtype != c.compute_dtype;
  const bool half = !autocast && c.param_dtype != Dtype::kF32;
  Dtype moments = c.param_dtype;  // as such weights have them unless said
  bool masters = false;
  std::string text(Name(c.compute_dtype));
  if (autocast) {
    text += " autocast";
    if (c.param_dtype != Dtype::kF32) text += Text(" over ", Name(c.param_dtype), " weights");
  } else if (half && c.master_weights) {
    masters = true;
    moments = Dtype::kF32;
    text += " with fp32 masters";
  } else if (half) {
    text = "pure " + text;
  }
  if (c.master_weights && !masters) text += " with fp32 masters";
  if (c.optimizer_state_dtype == moments) return text;
  return Text(text, c.master_weights ? " and " : " with ", Name(c.optimizer_state_dtype),
              " moments");
}

std::string OptimizerText(const TrainConfig& c) {
  switch (c.offload.optimizer) {
    case OptimizerOffload::kNone: return "optimizer on the device";
    case OptimizerOffload::kStream: return "optimizer state streamed from the host";
    case OptimizerOffload::kCpuAdam: return "optimizer on the CPU";
  }
  return "";
}

std::string ActivationText(const TrainConfig& c) {
  switch (c.offload.activations) {
    case ActivationOffload::kNone: return "activations on the device";
    case ActivationOffload::kLayers: return "activations of the middle layers on the host";
    case ActivationOffload::kCheckpoints: return "checkpoints on the host";
  }
  return "";
}

std::string StageText(const TrainConfig& c) {
  return c.zero.stage == 0 ? "no ZeRO" : Text("ZeRO ", c.zero.stage);
}

// 200000000 is 2e8 to those who write DeepSpeed configs.
std::string Elements(int64_t count) {
  int64_t exponent = 0;
  while (count >= 10 && count % 10 == 0) {
    count /= 10;
    ++exponent;
  }
  return exponent >= 3 ? Text(count, "e", exponent)
                       : Text(count, std::string(static_cast<size_t>(exponent), '0'));
}

std::string BucketText(const TrainConfig& c) {
  if (c.zero.reduce_bucket_size == c.zero.allgather_bucket_size) {
    return Text("buckets ", Elements(c.zero.reduce_bucket_size));
  }
  return Text("reduce bucket ", Elements(c.zero.reduce_bucket_size), ", all-gather bucket ",
              Elements(c.zero.allgather_bucket_size));
}

std::string OverlapText(const TrainConfig& c) {
  return c.zero.overlap_comm ? "communication overlapped" : "communication not overlapped";
}

struct Phrase {
  std::vector<std::string> fields;
  std::string (*text)(const TrainConfig&);
  bool always = false;
};

const std::vector<Phrase>& Phrases() {
  static const std::vector<Phrase> kPhrases = {
      {{"micro_batch", "grad_accum"}, BatchText, true},
      {{"checkpoint.every", "checkpoint.attention", "checkpoint.mlp"}, CheckpointText, true},
      {{"param_dtype", "compute_dtype", "optimizer_state_dtype", "master_weights"},
       PrecisionText, true},
      {{"zero.stage"}, StageText},
      {{"zero.reduce_bucket_size", "zero.allgather_bucket_size"}, BucketText},
      {{"zero.overlap_comm"}, OverlapText},
      {{"offload.optimizer"}, OptimizerText},
      {{"offload.activations"}, ActivationText},
  };
  return kPhrases;
}

std::vector<std::string> Parts(const TrainConfig& from, const TrainConfig& config, bool all) {
  std::vector<std::string> differing;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    if (GetField(from, path) != GetField(config, path)) differing.push_back(path);
  }
  std::vector<std::string> parts;
  for (const Phrase& phrase : Phrases()) {
    bool differs = false;
    for (const std::string& field : phrase.fields) {
      differs = std::erase(differing, field) > 0 || differs;
    }
    if (differs || (all && phrase.always)) parts.push_back(phrase.text(config));
  }
  for (const std::string& path : differing) {
    Json value = *GetField(config, path);
    parts.push_back(
        Text(path, " ", value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return parts;
}

}  // namespace

std::string Differences(const TrainConfig& from, const TrainConfig& config) {
  return Join(Parts(from, config, /*all=*/false));
}

std::vector<std::string> Describe(Framework framework, const TrainConfig& config) {
  TrainConfig base = BaseConfig(framework, DeviceFacts{});
  // Loss scales are part of what a precision means.
  if (auto precision = PrecisionOf(framework, config)) ApplyPrecision(*precision, framework, base);
  return Parts(base, config, /*all=*/true);
}

}  // namespace hbmtune::tuner
