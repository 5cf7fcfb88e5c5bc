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

std::vector<std::string> DifferingPaths(const TrainConfig& from, const TrainConfig& to) {
  std::vector<std::string> paths;
  for (const std::string& path : FieldPaths<TrainConfig>()) {
    if (GetField(from, path) != GetField(to, path)) paths.push_back(path);
  }
  return paths;
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
  const Reach reach = path == "precision" ? Reach::kTraining : Reach::kSetting;
  changes.push_back(
      {reach, path, Assignment(path, value), workload, config, DifferingPaths(asked, config)});
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

Framework WithDeepspeed(Framework framework) {
  return UsesSdpa(framework) ? Framework::kHfSdpaDeepspeed : Framework::kHfEagerDeepspeed;
}

bool HasZero(Framework framework) {
  return framework == Framework::kFused || UsesDeepspeed(framework);
}

// The config as another framework has it: what both have stays.
TrainConfig Converted(const TrainConfig& config, Framework framework) {
  TrainConfig converted = BaseConfig(framework, DeviceFacts{});
  converted.micro_batch = config.micro_batch;
  converted.grad_accum = config.grad_accum;
  converted.checkpoint = config.checkpoint;
  converted.allocator = config.allocator;
  return converted;
}

// SDPA in place of eager attention, and what DeepSpeed has on the same GPUs.
void AddFrameworks(const Workload& from, const TrainConfig& config,
                   std::vector<Change>& changes) {
  auto add = [&](Framework framework, auto set) {
    Change change{Reach::kFramework, "framework", Text("framework=", Name(framework)), from,
                  Converted(config, framework), {}};
    change.workload.framework = framework;
    set(change.config);
    change.with = DifferingPaths(Converted(config, framework), change.config);
    changes.push_back(std::move(change));
  };
  if (from.framework == Framework::kHfEager) add(Framework::kHfSdpa, [](TrainConfig&) {});
  if (from.framework == Framework::kHfEagerDdp) add(Framework::kHfSdpaDdp, [](TrainConfig&) {});
  if (HasZero(from.framework)) return;
  const Framework deepspeed = WithDeepspeed(from.framework);
  if (from.world_size > 1) add(deepspeed, [](TrainConfig& c) { c.zero.stage = 3; });
  add(deepspeed, [](TrainConfig& c) {
    c.offload.optimizer = OptimizerOffload::kCpuAdam;
    c.zero.stage = 2;
  });
  add(deepspeed, [](TrainConfig& c) {
    c.offload.optimizer = OptimizerOffload::kCpuAdam;
    c.zero.stage = 3;
  });
}

// The same global batch over more ranks.
void AddRanks(Workload workload, TrainConfig config, int64_t ranks, int64_t stage,
              std::vector<Change>& changes) {
  std::string what = Text("world_size=", ranks);
  if (!HasZero(workload.framework)) {
    workload.framework = WithDeepspeed(workload.framework);
    config = Converted(config, workload.framework);
    what = Text("framework=", Name(workload.framework), " and ", what);
  }
  const TrainConfig asked = config;
  if (workload.global_batch > 0) {
    if (workload.global_batch % (ranks * config.micro_batch) != 0) return;
    config.grad_accum = workload.global_batch / ranks / config.micro_batch;
  }
  workload.world_size = ranks;
  config.zero.stage = stage;
  changes.push_back({Reach::kRanks, "world_size", what, workload, config,
                     DifferingPaths(asked, config)});
}

}  // namespace

std::string Words(const Change& change) {
  std::string words = change.what;
  for (const std::string& path : change.with) {
    words += path == change.with.front() ? " with " : ", ";
    words += Assignment(path, *GetField(change.config, path));
  }
  return words;
}

Change Both(const Change& first, const Change& second) {
  Change both = second;
  both.reach = std::max(first.reach, second.reach);
  auto [least, most] = std::minmax(first.group, second.group);
  both.group = Text(least, " and ", most);
  both.what = Text(first.what, " and ", second.what);
  std::set<std::string> with(first.with.begin(), first.with.end());
  with.insert(second.with.begin(), second.with.end());
  with.erase(second.group);
  both.with.assign(with.begin(), with.end());
  return both;
}

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
    changes.push_back({Reach::kSetting, "micro_batch", Text("micro_batch=", micro_batch), workload,
                       changed, {}});
    if (changed.grad_accum != config.grad_accum) changes.back().with = {"grad_accum"};
  }
  return changes;
}

std::vector<Change> WorkloadChanges(const Workload& workload, const DeviceFacts& device,
                                    const TrainConfig& config) {
  std::vector<Change> changes;
  Workload changed = workload;
  if (workload.lora.rank == 0) {
    changed.lora.rank = std::min<int64_t>(16, workload.model.hidden);
    changes.push_back({Reach::kTraining, "lora", Text("lora.rank=", changed.lora.rank), changed,
                       config, {}});
  }
  if (!device.host) AddFrameworks(workload, config, changes);
  for (int64_t times = 2; times <= 8 && !device.host; times *= 2) {
    for (int64_t stage = std::max<int64_t>(2, config.zero.stage); stage <= 3; ++stage) {
      AddRanks(workload, config, times * workload.world_size, stage, changes);
    }
  }
  changed = workload;
  for (changed.seq_len /= 2; changed.seq_len >= 128; changed.seq_len /= 2) {
    changes.push_back({Reach::kTraining, "seq_len", Text("seq_len=", changed.seq_len), changed,
                       config, {}});
  }
  return changes;
}

}  // namespace hbmtune::tuner
