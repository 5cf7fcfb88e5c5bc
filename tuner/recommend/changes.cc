#include "tuner/recommend/changes.h"

#include <algorithm>
#include <set>

#include "kernels/core/field_path.h"
#include "kernels/core/precision.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

std::string Assignment(const std::string& path, const Json& value) {
  return Text(path, "=", value.is_string() ? value.get<std::string>() : value.dump());
}

// Changes what `path`, just set, does not go with.
void MakeLegal(const Workload& workload, const std::string& path, TrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  const bool to_host = path == "offload.activations" &&
                       config.offload.activations == ActivationOffload::kCheckpoints;
  if (to_host && checkpoint.every == 0) checkpoint.every = 1;
  if (path == "checkpoint.every" || to_host) checkpoint.attention = checkpoint.mlp = 0;
  if (path == "checkpoint.attention" || path == "checkpoint.mlp") checkpoint.every = 0;
  if (path != "zero.stage" && UsesDeepspeed(workload.framework) && config.zero.stage == 0 &&
      config.offload.optimizer != OptimizerOffload::kNone) {
    config.zero.stage = 2;
  }
}

// " with checkpoint.every=1, zero.stage=2"; empty if nothing differs.
std::string With(const TrainConfig& asked, const TrainConfig& config) {
  std::string text;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    const auto value = GetField(config, path);
    if (value == GetField(asked, path)) continue;
    text += (text.empty() ? " with " : ", ") + Assignment(path, *value);
  }
  return text;
}

// One field, and what must change with it to stay legal.
void AddChange(const Workload& workload, TrainConfig config, const std::string& path,
               const Json& value, std::vector<Change>& changes) {
  if (path == "precision") {
    ApplyPrecision(*ParseEnum<Precision>(value.get<std::string>()), workload.framework, config);
  } else {
    SetField(config, path, value);
  }
  const TrainConfig asked = config;
  MakeLegal(workload, path, config);
  changes.push_back({path, Assignment(path, value) + With(asked, config), workload, config});
}

// Switches that no axis turns.
void AddSwitches(const Workload& workload, const TrainConfig& config,
                 std::vector<Change>& changes) {
  std::set<std::string> known = {"master_weights"};  // a part of "precision"
  for (const Change& change : changes) known.insert(change.group);
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    const auto value = GetField(config, path);
    if (!value || !value->is_boolean() || known.contains(path)) continue;
    AddChange(workload, config, path, !value->get<bool>(), changes);
  }
  for (AttentionKind kind : {AttentionKind::kTiled, AttentionKind::kMaterialised}) {
    if (kind != config.attention) {
      AddChange(workload, config, "attention", ToJson(kind), changes);
    }
  }
  for (OptimizerLoop loop :
       {OptimizerLoop::kFused, OptimizerLoop::kForeach, OptimizerLoop::kForLoop}) {
    if (loop != config.optimizer_loop) {
      AddChange(workload, config, "optimizer_loop", ToJson(loop), changes);
    }
  }
}

// The same global batch over more ranks.
void AddRanks(Workload workload, TrainConfig config, int64_t ranks, int64_t stage,
              std::vector<Change>& changes) {
  if (workload.global_batch > 0) {
    if (workload.global_batch % (ranks * config.micro_batch) != 0) return;
    config.grad_accum = workload.global_batch / ranks / config.micro_batch;
  }
  workload.world_size = ranks;
  config.zero.stage = std::max(config.zero.stage, stage);
  std::string text = Text("zero.stage=", config.zero.stage, " on ", ranks, " GPUs");
  changes.push_back({Text("ranks, stage ", stage), text, workload, config});
}

}  // namespace

std::vector<Change> TunableChanges(const Workload& workload, const DeviceFacts& device,
                                   const TrainConfig& config) {
  std::vector<Change> changes;
  absl::StatusOr<Space> unpinned = Space::Create(workload, device);
  if (!unpinned.ok()) return changes;
  for (const Axis& axis : unpinned->axes()) {
    if (axis.path == "precision") continue;
    for (const Json& value : axis.values) {
      if (*GetField(config, axis.path) != value) {
        AddChange(workload, config, axis.path, value, changes);
      }
    }
  }
  for (std::string_view name : EnumNames<Precision>::kNames) {
    AddChange(workload, config, "precision", Json(std::string(name)), changes);
  }
  if (workload.framework == Framework::kFused && config.loss_chunk_tokens == 0) {
    AddChange(workload, config, "loss_chunk_tokens", 1024, changes);
  }
  AddSwitches(workload, config, changes);
  return changes;
}

std::vector<Change> BatchChanges(const Workload& workload, const TrainConfig& config) {
  std::vector<Change> changes;
  const int64_t share = config.micro_batch * config.grad_accum;
  const std::set<int64_t> micro_batches = {1, std::max<int64_t>(1, config.micro_batch / 2),
                                           2 * config.micro_batch};
  for (int64_t micro_batch : micro_batches) {
    const bool divides = share % micro_batch == 0;
    if (micro_batch == config.micro_batch || (!divides && workload.global_batch > 0)) continue;
    TrainConfig changed = config;
    changed.micro_batch = micro_batch;
    if (divides) changed.grad_accum = share / micro_batch;
    std::string text = Text("micro_batch=", micro_batch);
    if (changed.grad_accum != config.grad_accum) {
      text += Text(" with grad_accum=", changed.grad_accum);
    }
    changes.push_back({"micro_batch", text, workload, changed});
  }
  return changes;
}

std::vector<Change> WorkloadChanges(const Workload& workload, const DeviceFacts& device,
                                    const TrainConfig& config) {
  std::vector<Change> changes;
  bool has_zero = workload.framework == Framework::kFused || UsesDeepspeed(workload.framework);
  for (int64_t times = 2; times <= 16 && has_zero && !device.host; times *= 2) {
    AddRanks(workload, config, times * workload.world_size, 2, changes);
    AddRanks(workload, config, times * workload.world_size, 3, changes);
  }
  Workload changed = workload;
  if (workload.lora.rank == 0) {
    changed.lora.rank = std::min<int64_t>(16, workload.model.hidden);
    changes.push_back({"lora", Text("lora.rank=", changed.lora.rank), changed, config});
  }
  changed = workload;
  for (changed.seq_len /= 2; changed.seq_len >= 128; changed.seq_len /= 2) {
    changes.push_back({"seq_len", Text("seq_len=", changed.seq_len), changed, config});
  }
  return changes;
}

}  // namespace hbmtune::tuner
