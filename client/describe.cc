#include "client/describe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "client/flags.h"
#include "client/text.h"
#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

std::string Every(int64_t interval, const std::string& what) {
  if (interval == 1) return "every " + what;
  return "one " + what + " in " + std::to_string(interval);
}

std::vector<std::string> BatchParts(const TrainConfig& config) {
  return {"micro-batch " + std::to_string(config.micro_batch),
          "accumulation " + std::to_string(config.grad_accum)};
}

std::string Joined(const std::vector<std::string>& parts, std::string_view between = ", ") {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += between;
    text += part;
  }
  return text;
}

std::string DescribeCheckpoint(const CheckpointConfig& checkpoint) {
  std::vector<std::string> parts;
  if (checkpoint.every > 0) parts.push_back(Every(checkpoint.every, "layer"));
  if (checkpoint.attention > 0) parts.push_back(Every(checkpoint.attention, "attention block"));
  if (checkpoint.mlp > 0) parts.push_back(Every(checkpoint.mlp, "MLP block"));
  if (parts.empty()) return "no checkpointing";
  std::string text = "checkpoint " + JoinWords(parts, "and");
  if (!checkpoint.keep_inputs) text += ", inputs recomputed";
  return checkpoint.reentrant ? text + ", reentrant" : text;
}

std::string DescribePrecision(const TrainConfig& config, Framework framework) {
  if (auto precision = PrecisionOf(framework, config)) return std::string(Name(*precision));
  std::string text = std::string(Name(config.param_dtype)) + " weights";
  text += ", " + std::string(Name(config.compute_dtype)) + " compute";
  text += ", " + std::string(Name(config.optimizer_state_dtype)) + " optimizer state";
  return config.master_weights ? text + ", fp32 masters" : text;
}

// 200000000 is 2e8 to those who write DeepSpeed configs; never rounded.
std::string Elements(int64_t count) {
  int64_t exponent = 0;
  int64_t digits = count;
  for (; digits >= 10 && digits % 10 == 0; digits /= 10) ++exponent;
  if (exponent < 3) return std::to_string(count);
  return std::to_string(digits) + "e" + std::to_string(exponent);
}

std::vector<std::string> ZeroParts(const TrainConfig& config, Framework framework) {
  std::vector<std::string> parts;
  bool partitions = config.zero.stage > 0 || UsesDeepspeed(framework);
  if (partitions) parts.push_back("ZeRO " + std::to_string(config.zero.stage));
  if (config.offload.optimizer == OptimizerOffload::kCpuAdam) {
    parts.push_back("optimizer on the CPU");
  }
  if (config.offload.optimizer == OptimizerOffload::kStream) {
    parts.push_back("optimizer state streamed");
  }
  if (config.offload.activations != ActivationOffload::kNone) {
    parts.push_back(std::string(Name(config.offload.activations)) + " in host memory");
  }
  if (config.zero.stage > 0) {
    parts.push_back("buckets " + Elements(config.zero.reduce_bucket_size));
    if (config.zero.overlap_comm) parts.push_back("overlapped");
  }
  return parts;
}

// Fields that the other parts tell.
bool IsTold(const std::string& path) {
  static const std::vector<std::string> kTold = {
      "micro_batch",       "grad_accum",            "param_dtype",
      "compute_dtype",     "optimizer_state_dtype", "master_weights",
      "checkpoint.every",  "checkpoint.attention",  "checkpoint.mlp",
      "checkpoint.keep_inputs", "checkpoint.reentrant", "offload.optimizer",
      "offload.activations", "zero.stage", "zero.reduce_bucket_size", "zero.overlap_comm"};
  return std::find(kTold.begin(), kTold.end(), path) != kTold.end();
}

// What else is not as it is by itself, in this precision.
std::vector<std::string> RestParts(const TrainConfig& config, Framework framework) {
  TrainConfig usual;
  if (auto precision = PrecisionOf(framework, config)) {
    ApplyPrecision(*precision, framework, usual);
  }
  std::vector<std::string> parts;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    if (IsTold(path) || GetField(config, path) == GetField(usual, path)) continue;
    parts.push_back(DescribeField(config, path));
  }
  return parts;
}

std::string DescribeSequences(const Workload& workload) {
  const std::string longest = std::to_string(workload.seq_len);
  switch (workload.sequences.layout) {
    case SequenceLayout::kFixed: return "seq " + longest;
    case SequenceLayout::kPacked: return "seq " + longest + " packed";
    case SequenceLayout::kPadded: break;
  }
  return "seq up to " + longest + " padded, " + std::string(Name(workload.sequences.order));
}

std::string Percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%s%.0f %%", ratio < 0 ? "−" : "+", std::fabs(100 * ratio));
  return text;
}

}  // namespace

std::string DescribeWorkload(const Workload& workload) {
  std::string text = workload.model.name;
  text += workload.lora.rank > 0 ? " · LoRA rank " + std::to_string(workload.lora.rank)
                                 : std::string(" · full fine-tune");
  text += " · " + std::string(Name(workload.optimizer));
  text += " · " + DescribeSequences(workload);
  if (workload.world_size > 1) text += " · " + std::to_string(workload.world_size) + " GPUs";
  return text + " · " + std::string(Name(workload.framework));
}

std::vector<std::string> DescribeConfig(const TrainConfig& config, Framework framework) {
  std::vector<std::string> lines = {Joined(BatchParts(config), " × "),
                                    DescribeCheckpoint(config.checkpoint),
                                    DescribePrecision(config, framework)};
  for (const auto& parts : {ZeroParts(config, framework), RestParts(config, framework)}) {
    if (!parts.empty()) lines.push_back(Joined(parts));
  }
  return lines;
}

std::string DescribeConfigShort(const TrainConfig& config, Framework framework) {
  return Joined(DescribeConfig(config, framework));
}

std::vector<std::string> DescribeParts(const TrainConfig& config, Framework framework) {
  std::vector<std::string> all = BatchParts(config);
  all.push_back(DescribeCheckpoint(config.checkpoint));
  all.push_back(DescribePrecision(config, framework));
  for (const auto& parts : {ZeroParts(config, framework), RestParts(config, framework)}) {
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

std::string DescribeField(const TrainConfig& config, const std::string& path) {
  const Json value = GetField(config, path).value_or(Json());
  std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
  if (path.starts_with("zero.") && value.is_number_integer() && value.get<int64_t>() >= 1000) {
    shown = Elements(value.get<int64_t>());
  }
  return FlagName(path).substr(2) + " " + shown;
}

Figures FiguresOf(const Estimate& estimate) {
  return {estimate.tokens_per_second, estimate.step_seconds, estimate.peak_used_bytes,
          estimate.host_bytes, estimate.capacity_bytes};
}

Figures FiguresOf(const Measurement& measurement) {
  int64_t peak = std::max(measurement.peak_used_bytes, measurement.peak_reserved_bytes);
  return {measurement.tokens_per_second, measurement.step_seconds, peak, measurement.host_bytes,
          measurement.capacity_bytes};
}

std::string DescribeEvidence(Evidence evidence, const Interval& interval) {
  std::string text(Name(evidence));
  if (interval.low_ratio == 0 && interval.high_ratio == 0) return text;
  return text + " (peak " + Percent(interval.low_ratio) + "…" + Percent(interval.high_ratio) + ")";
}

bool DeviceIsShort(const Estimate& estimate) {
  return estimate.peak_used_bytes > estimate.ceiling_bytes;
}

bool HostIsShort(const Estimate& estimate, int64_t host_ceiling_bytes) {
  return host_ceiling_bytes > 0 && estimate.host_bytes > host_ceiling_bytes;
}

std::string DescribeHostNeed(const Estimate& estimate, int64_t host_ceiling_bytes) {
  return FormatBytes(estimate.host_bytes) + " of host memory, of which " +
         FormatBytes(host_ceiling_bytes) + " may be used";
}

std::string DescribeSpace(int64_t legal, int64_t settings) {
  return FormatCount(legal) + " legal configs, " + FormatCount(settings) +
         " that differ in more than micro-batch";
}

std::string DescribeBreakdown(const std::vector<CategoryBytes>& breakdown) {
  std::vector<CategoryBytes> owners;
  int64_t outside = 0;
  int64_t whole = 0;
  for (const CategoryBytes& owner : breakdown) {
    whole += owner.bytes;
    if (owner.category < Category::kContext) {
      owners.push_back(owner);
    } else {
      outside += owner.bytes;
    }
  }
  std::stable_sort(owners.begin(), owners.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const CategoryBytes& owner : owners) {
    if (owner.bytes * 1000 < whole || owner.bytes == 0) continue;
    text += (text.empty() ? "" : " · ") + std::string(Name(owner.category)) + " " +
            FormatBytes(owner.bytes);
  }
  if (outside > 0) text += " · outside the allocator " + FormatBytes(outside);
  return text;
}

}  // namespace hbmtune::client
