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

std::string DescribeBatch(const TrainConfig& config) {
  return "micro-batch " + std::to_string(config.micro_batch) + " × accumulation " +
         std::to_string(config.grad_accum);
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

std::string Elements(int64_t count) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(count));
  std::string shorter = text;  // "2e+08" → "2e8"
  if (size_t at = shorter.find("e+0"); at != std::string::npos) shorter.erase(at + 1, 2);
  return shorter;
}

std::string DescribeZero(const TrainConfig& config, Framework framework) {
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
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// "allocator.max_split_size_mb" → "max-split-size-mb 128".
std::string DescribeRest(const TrainConfig& config) {
  std::string text;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    bool told = path.starts_with("allocator.") || path.starts_with("ddp.") ||
                path.starts_with("promotion.") || path == "loss_chunk_tokens" ||
                path == "attention" || path == "optimizer_loop" || path == "cleanup_every_steps";
    auto value = GetField(config, path);
    if (!told || !value || value == GetField(TrainConfig{}, path)) continue;
    std::string shown = value->is_string() ? value->get<std::string>() : value->dump();
    text += (text.empty() ? "" : ", ") + FlagName(path).substr(2) + " " + shown;
  }
  return text;
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
  std::vector<std::string> lines = {DescribeBatch(config), DescribeCheckpoint(config.checkpoint),
                                    DescribePrecision(config, framework)};
  for (std::string& line : std::vector{DescribeZero(config, framework), DescribeRest(config)}) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string DescribeConfigShort(const TrainConfig& config, Framework framework) {
  std::string text;
  for (const std::string& line : DescribeConfig(config, framework)) {
    text += (text.empty() ? "" : ", ") + line;
  }
  return text;
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
