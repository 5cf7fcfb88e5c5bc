#include "tests/kernels/lowering/hf_recording.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <stdexcept>

#include "kernels/model/model_config.h"

namespace hbmtune::testing {
namespace {

using nlohmann::json;

void ReadPrecision(const std::string& precision, TrainConfig& config) {
  config.param_dtype = precision == "bf16" ? Dtype::kBf16 : Dtype::kF32;
  config.compute_dtype = precision == "fp32"      ? Dtype::kF32
                         : precision == "amp_fp16" ? Dtype::kF16
                                                   : Dtype::kBf16;
  config.optimizer_state_dtype = config.param_dtype;
}

void ReadSpec(const json& spec, HfRecording& run) {
  Workload& w = run.workload;
  TrainConfig& c = run.config;
  const bool ddp = spec.value("ddp", "none") != "none";
  const bool sdpa = spec["attention"] == "sdpa";
  w.framework = ddp ? (sdpa ? Framework::kHfSdpaDdp : Framework::kHfEagerDdp)
                    : (sdpa ? Framework::kHfSdpa : Framework::kHfEager);
  if (ddp) {
    w.world_size = 2;
    c.ddp.gradient_as_bucket_view = spec["ddp"] == "view";
    c.ddp.bucket_cap_mb = spec["bucket_mb"];
    run.options.default_buckets = run.options.settle_buckets = false;
  }
  w.seq_len = spec["seq"];
  w.grad_clip = spec["clip"];
  if (spec["lora"] != "none") {
    w.lora.rank = spec["lora_r"];
    w.lora.dropout = spec["lora_dropout"];
    w.lora.targets = spec["lora"] == "qv" ? "attention" : "all-linear";
  }
  c.micro_batch = spec["batch"];
  c.grad_accum = spec["accumulation"];
  ReadPrecision(spec["precision"], c);
  c.checkpoint.every = spec["checkpoint"] == "none" ? 0 : 1;
  c.checkpoint.reentrant = spec["checkpoint"] == "reentrant";
  const std::string optimizer = spec["optimizer"];
  c.optimizer_loop = optimizer == "adamw_foreach" ? OptimizerLoop::kForeach
                     : optimizer == "adamw_loop"  ? OptimizerLoop::kForLoop
                                                  : OptimizerLoop::kFused;
  run.options.trainer_groups = spec["groups"] == "trainer";
  run.options.outputs_fp32 = spec["outputs_fp32"].get<bool>();
  run.options.evaluate = true;
  // cuBLASLt's on an A100, taken and given back by each product.
  if (spec["workspace"]) run.options.gpu.workspace_bytes = 8519680;
  w.model.dropout = w.model.attention_dropout = spec["dropout"];
}

void ReadZero(const json& spec, HfRecording& run) {
  run.workload.framework = UsesSdpa(run.workload.framework) ? Framework::kHfSdpaDeepspeed
                                                            : Framework::kHfEagerDeepspeed;
  run.workload.world_size = spec["world"];
  run.options.rank = spec["rank"];
  run.options.outputs_fp32 = false;
  run.options.evaluate = false;
  run.options.zero_init = spec["zero_init"];
  TrainConfig& c = run.config;
  c.param_dtype = c.compute_dtype = spec["dtype"] == "fp16" ? Dtype::kF16 : Dtype::kBf16;
  c.optimizer_state_dtype = Dtype::kF32;
  c.master_weights = true;
  ZeroConfig& z = c.zero;
  z.stage = spec["stage"];
  z.overlap_comm = spec["overlap_comm"].is_boolean() ? spec["overlap_comm"].get<bool>() : false;
  z.contiguous_gradients = spec["contiguous_gradients"];
  z.reduce_scatter = spec["reduce_scatter"];
  z.reduce_bucket_size = spec["reduce_bucket_size"];
  z.prefetch_bucket_size = spec["prefetch_bucket_size"];
  z.param_persistence_threshold = spec["persistence_threshold"];
  z.max_live_parameters = spec["max_live_parameters"];
  z.max_reuse_distance = spec["max_reuse_distance"];
  z.sub_group_size = spec["sub_group_size"];
  if (spec["offload"] != "none") c.offload.optimizer = OptimizerOffload::kCpuAdam;
}

// What a Program does not repeat: pauses between micro-steps, evaluation, saving, a third step.
bool IsLeftOut(const json& phase, bool zero) {
  const std::string name = phase["name"];
  return name == "micro_step" || (zero && (phase["step"] > 2 || name == "eval" || name == "save"));
}

HfRecording ReadRun(const json& run) {
  HfRecording result;
  result.name = run["name"];
  result.workload.model = ParseModelConfig(run["config"].dump(), result.name);
  const bool zero = run["spec"].contains("stage");
  ReadSpec(zero ? run["spec"]["model"] : run["spec"], result);
  if (zero) {
    ReadZero(run["spec"], result);
  } else {
    // Moved from the meta device, two modules that share a tensor get one each: a tied model was
    // recorded untied.
    result.workload.model.tied_embeddings = false;
  }
  size_t allocations = 0;
  for (const json& phase : run["phases"]) {
    if (IsLeftOut(phase, zero)) continue;
    PhaseEvents events{phase["name"], phase["step"], {}};
    for (const json& event : phase["events"]) {
      const int64_t number = event[2];
      events.events.push_back({event[0], number, run["ops"][event[1].get<size_t>()]});
      allocations = std::max(allocations, static_cast<size_t>(number) + 1);
    }
    result.phases.push_back(std::move(events));
  }
  result.owned.resize(allocations);
  for (const char* owner : {"parameter", "gradient", "optimizer", "master"}) {
    if (!run["categories"].contains(owner)) continue;
    for (const json& number : run["categories"][owner]) {
      if (number.get<size_t>() < allocations) result.owned[number] = true;
    }
  }
  return result;
}

std::string PhaseName(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kLoss: return "forward";
    case PhaseKind::kZeroGrad: return "zero_grad";
    case PhaseKind::kEvaluate: return "eval";
    default: return std::string(Name(kind));
  }
}

// Walks a Program and numbers its allocations.
class EventWalk {
 public:
  explicit EventWalk(const Program& program) : program_(program) {}

  std::vector<PhaseEvents> Walk() {
    for (size_t i = 0; i < program_.code.size(); ++i) {
      if (i == program_.first_step || i == program_.steady_step) ++step_;
      std::visit([this](const auto& instruction) { Take(instruction); }, program_.code[i]);
    }
    return std::move(phases_);
  }

 private:
  template <class T>
  void Take(const T&) {}

  void Take(const Phase& phase) {
    const bool continues = phase.kind == PhaseKind::kLoss;
    if (continues) return;
    phases_.push_back({PhaseName(phase.kind), step_, {}});
  }
  void Take(const hbmtune::Run& run) {
    if (phases_.empty()) return;
    // The label of what was just allocated is the op that fills it.
    auto& events = phases_.back().events;
    for (size_t i = events.size(); i-- > 0 && events[i].label.empty();) {
      events[i].label = run.op->name;
    }
  }
  void Take(const Allocate& a) {
    if (a.space == MemorySpace::kPinned) return;
    live_[a.storage] = {next_, a.bytes};
    phases_.back().events.push_back({a.bytes, next_++, ""});
  }
  void Take(const Free& f) {
    auto found = live_.find(f.storage);
    if (found == live_.end()) return;
    phases_.back().events.push_back({-found->second.second, found->second.first, "free"});
    live_.erase(found);
  }

  const Program& program_;
  int64_t step_ = 0;
  int64_t next_ = 0;
  std::map<StorageId, std::pair<int64_t, int64_t>> live_;
  std::vector<PhaseEvents> phases_;
};

// Running sum at its highest in each phase, and what of it is activations.
struct PhasePeak {
  int64_t bytes = 0;
  int64_t activations = 0;
};

std::vector<PhasePeak> Peaks(const std::vector<PhaseEvents>& phases,
                             const std::vector<bool>& owned) {
  std::vector<PhasePeak> peaks;
  int64_t live = 0, held = 0;
  for (const PhaseEvents& phase : phases) {
    PhasePeak peak{live, live - held};
    for (const MemoryEvent& event : phase.events) {
      live += event.bytes;
      if (static_cast<size_t>(event.allocation) < owned.size() && owned[event.allocation]) {
        held += event.bytes;
      }
      if (live > peak.bytes) peak = {live, live - held};
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string Describe(const PhaseEvents& phase, size_t i) {
  if (i >= phase.events.size()) return "nothing";
  const MemoryEvent& e = phase.events[i];
  return std::to_string(e.bytes) + " #" + std::to_string(e.allocation) + " " + e.label;
}

}  // namespace

std::vector<HfRecording> LoadRecordings(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<HfRecording> runs;
  const json whole = json::parse(file);
  for (const json& run : whole["runs"]) runs.push_back(ReadRun(run));
  return runs;
}

std::vector<PhaseEvents> EventsOf(const Program& program) { return EventWalk(program).Walk(); }

RecordingError CompareToRecording(const HfRecording& recording,
                                  const std::vector<PhaseEvents>& program) {
  RecordingError error;
  error.same_events = recording.phases.size() == program.size();
  if (!error.same_events) {
    error.first_difference = std::to_string(program.size()) + " phases for " +
                             std::to_string(recording.phases.size());
  }
  const auto truth = Peaks(recording.phases, recording.owned);
  const auto ours = Peaks(program, {});
  // Clipping and stepping have next to no activations: a hundredth of the run's is the least base.
  int64_t most = 1;
  for (const PhasePeak& peak : truth) most = std::max(most, peak.activations);
  for (size_t p = 0; p < std::min(truth.size(), ours.size()); ++p) {
    const PhaseEvents& expected = recording.phases[p];
    const PhaseEvents& actual = program[p];
    const std::string place =
        expected.name + " of step " + std::to_string(expected.step);
    const double base = static_cast<double>(std::max(truth[p].activations, most / 100));
    const double off = std::abs(static_cast<double>(ours[p].bytes - truth[p].bytes)) / base;
    if (off > error.worst && expected.name != "zero_grad" && expected.name != "setup") {
      error.worst = off;
      error.where = place + ": " + std::to_string(ours[p].bytes) + " for " +
                    std::to_string(truth[p].bytes);
    }
    if (!error.first_difference.empty() || expected.events == actual.events) continue;
    error.same_events = false;
    size_t i = 0;
    while (i < std::min(expected.events.size(), actual.events.size()) &&
           expected.events[i] == actual.events[i]) {
      ++i;
    }
    error.first_difference = place + " (" + actual.name + "), event " + std::to_string(i) +
                             ": " + Describe(actual, i) + " for " + Describe(expected, i);
  }
  return error;
}

}  // namespace hbmtune::testing
