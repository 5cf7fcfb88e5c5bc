#include <stdexcept>

#include "kernels/core/field_path.h"
#include "kernels/model/model_config.h"
#include "kernels/core/precision.h"
#include "kernels/model/parameters.h"
#include "tuner/space/space.h"
#include "tuner/space/tunables.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

absl::Status CheckSequences(const Workload& w) {
  if (w.seq_len < 1) return Illegal("seq_len ", w.seq_len, " must be at least 1 token");
  if (w.seq_len > w.model.max_positions) {
    return Illegal("seq_len ", w.seq_len, " is longer than the ", w.model.max_positions,
                   " positions of ", w.model.name, ": shorten the sequence");
  }
  if (w.sequences.min_tokens < 1 || w.sequences.min_tokens > w.seq_len) {
    return Illegal("sequences.min_tokens ", w.sequences.min_tokens,
                   " must lie between 1 and seq_len ", w.seq_len);
  }
  if (!(w.sequences.mean_ratio > 0 && w.sequences.mean_ratio <= 1)) {
    return Illegal("sequences.mean_ratio ", w.sequences.mean_ratio,
                   " must be over 0 and at most 1");
  }
  if (w.sequences.layout != SequenceLayout::kFixed && w.framework != Framework::kFused) {
    return Illegal("sequences.layout ", Name(w.sequences.layout), " is not modelled for ",
                   Name(w.framework), ": fixed is, and framework fused models it");
  }
  if (w.sequences.pad_multiple < 1) {
    return Illegal("sequences.pad_multiple ", w.sequences.pad_multiple,
                   " must be at least 1 token");
  }
  return absl::OkStatus();
}

absl::Status CheckRanks(const Workload& w) {
  constexpr int64_t kMostRanks = 65536;
  if (w.world_size < 1 || w.world_size > kMostRanks) {
    return Illegal("world_size ", w.world_size, " must lie between 1 and ", kMostRanks);
  }
  bool alone = w.framework == Framework::kHfEager || w.framework == Framework::kHfSdpa;
  if (alone && w.world_size > 1) {
    return Illegal("world_size ", w.world_size, ": ", Name(w.framework), " runs on one rank; use ",
                   Name(w.framework), "+ddp or ", Name(w.framework), "+deepspeed");
  }
  if (w.global_batch < 0) return Illegal("global_batch ", w.global_batch, " is negative");
  if (w.global_batch > kMostSequencesPerRank * w.world_size) {
    return Illegal("global_batch ", w.global_batch, " is too large: at most ",
                   kMostSequencesPerRank * w.world_size, " sequences in one optimizer step, ",
                   kMostSequencesPerRank, " a rank");
  }
  if (w.global_batch % w.world_size != 0) {
    const int64_t under = w.global_batch / w.world_size * w.world_size;
    const std::string nearest =
        under == 0 ? Text(w.world_size, " is") : Text(under, " and ", under + w.world_size, " are");
    return Illegal("global_batch ", w.global_batch, " is not divisible by world_size ",
                   w.world_size, ": ", nearest);
  }
  return absl::OkStatus();
}

// As their lowering has it: said here, it is said before a study begins.
absl::Status CheckOptimizer(const Workload& w) {
  if (w.framework == Framework::kFused || w.optimizer == Optimizer::kAdamw) {
    return absl::OkStatus();
  }
  return Illegal("optimizer ", Name(w.optimizer), " is not modelled for ", Name(w.framework),
                 ": adamw is");
}

absl::Status CheckLora(const Workload& w) {
  if (w.lora.rank == 0) return absl::OkStatus();
  if (w.lora.rank < 0 || w.lora.rank > w.model.hidden) {
    return Illegal("lora.rank ", w.lora.rank, " must lie between 0 (full fine-tuning) and the ",
                   w.model.hidden, " of the model's width");
  }
  if (!(w.lora.alpha > 0)) return Illegal("lora.alpha ", w.lora.alpha, " must be over 0");
  if (!(w.lora.dropout >= 0 && w.lora.dropout < 1)) {
    return Illegal("lora.dropout ", w.lora.dropout, " must be at least 0 and under 1");
  }
  if (w.lora.targets != "attention" && w.lora.targets != "all-linear") {
    return Illegal("lora.targets '", w.lora.targets, "' is not attention or all-linear");
  }
  return absl::OkStatus();
}

// "fp32.norms true", or the same with what the field is by default.
std::string Shown(std::string_view path, const Json& value) {
  return Text(path, " ", value.is_string() ? value.get<std::string>() : value.dump());
}

// A field that does not apply must be what the framework's base has.
absl::Status CheckConditions(const Workload& w, const TrainConfig& c) {
  TrainConfig base = BaseConfig(w.framework, DeviceFacts{});
  base.loss_scale = LossScaleConfig{};
  for (const Tunable& tunable : Tunables()) {
    bool has = tunable.framework_has(w.framework);
    if (has && tunable.applies(w, c)) continue;
    Json value = *GetField(c, tunable.path);
    Json expected = *GetField(base, tunable.path);
    if (value == expected) continue;
    if (has) {
      return Illegal(Shown(tunable.path, value), " needs ", tunable.needs, ": choose that, or ",
                     Shown(tunable.path, expected));
    }
    return Illegal(Shown(tunable.path, value), ": ", Name(w.framework), " has no ", tunable.path,
                   "; leave it out, or use ", tunable.who);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateWorkload(const Workload& w) {
  try {
    CheckModelSpec(w.model);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  }
  absl::Status status = CheckSequences(w);
  if (status.ok()) status = CheckRanks(w);
  if (status.ok()) status = CheckOptimizer(w);
  if (status.ok()) status = CheckLora(w);
  if (status.ok() && !(w.grad_clip >= 0)) {
    status = Illegal("grad_clip ", w.grad_clip, " must be at least 0, which is no clipping");
  }
  return status;
}

absl::Status Validate(const Workload& workload, const TrainConfig& config) {
  absl::Status status = ValidateWorkload(workload);
  if (status.ok()) status = CheckLimits(config);
  if (status.ok()) status = CheckConditions(workload, config);
  if (status.ok()) status = CheckValues(workload, config);
  return status;
}

TrainConfig BaseConfig(Framework framework, const DeviceFacts& device) {
  TrainConfig config;
  bool fp32 = device.host && !UsesDeepspeed(framework);
  ApplyPrecision(fp32 ? Precision::kFp32 : Precision::kBf16Amp, framework, config);
  if (framework != Framework::kFused && !UsesSdpa(framework)) {
    config.attention = AttentionKind::kMaterialised;
  }
  return config;
}

}  // namespace hbmtune::tuner
