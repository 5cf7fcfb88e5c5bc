#include "tuner/space/space.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/field_path.h"
#include "tuner/space/pins.h"
#include "tuner/space/tunables.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

bool IsDetail(std::string_view path) {
  for (const Tunable& tunable : Tunables()) {
    if (tunable.path == path) return tunable.detail;
  }
  return false;
}

// Ascending, in pairs up to the square root: 1024 tries for the largest share that is legal.
std::vector<int64_t> Divisors(int64_t share) {
  std::vector<int64_t> divisors;
  for (int64_t m = 1; m * m <= share; ++m) {
    if (share % m != 0) continue;
    divisors.push_back(m);
    if (m * m != share) divisors.push_back(share / m);
  }
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

std::vector<int64_t> AllMicroBatches(const Workload& w, const Pins& pins) {
  if (w.global_batch > 0) return Divisors(w.global_batch / w.world_size);
  int64_t most = kLargestMicroBatch;
  auto pin = pins.find("micro_batch");
  if (pin != pins.end() && pin->second.is_object() &&
      pin->second.contains("max") && pin->second["max"].is_number_integer()) {
    most = std::clamp<int64_t>(pin->second["max"].get<int64_t>(), 1, 1 << 16);
  }
  std::vector<int64_t> all(static_cast<size_t>(most));
  std::iota(all.begin(), all.end(), int64_t{1});
  return all;
}

// Micro-batches by the pins and the global batch, for which accumulation comes out as pinned.
absl::StatusOr<std::vector<int64_t>> MicroBatches(const Workload& w, const Pins& pins) {
  absl::StatusOr<std::vector<int64_t>> values =
      PinnedNumbers(pins, "micro_batch", AllMicroBatches(w, pins));
  if (!values.ok() || w.global_batch == 0) return values;
  int64_t share = w.global_batch / w.world_size;
  std::vector<int64_t> accumulations;  // ascending, as the search below needs it
  for (auto m = values->rbegin(); m != values->rend(); ++m) {
    if (share % *m == 0) accumulations.push_back(share / *m);
  }
  absl::StatusOr<std::vector<int64_t>> allowed = PinnedNumbers(pins, "grad_accum", accumulations);
  if (!allowed.ok()) return allowed;
  std::vector<int64_t> left;
  for (int64_t m : *values) {
    if (share % m == 0 &&
        std::binary_search(allowed->begin(), allowed->end(), share / m)) {
      left.push_back(m);
    }
  }
  if (!left.empty()) return left;
  return Illegal("no micro_batch and grad_accum that the pins allow make global_batch ",
                   w.global_batch, " on ", w.world_size, " ranks");
}

// Multiplying by 1.5 and 1.33 in turn: 1, 2, 3, 4, 6, 8, 12, …
bool OnGrid(int64_t m) {
  while (m % 2 == 0) m /= 2;
  return m == 1 || m == 3;
}

std::vector<int64_t> Grid(const std::vector<int64_t>& all) {
  constexpr size_t kFew = 32;
  if (all.size() <= kFew) return all;
  std::vector<int64_t> grid;
  std::copy_if(all.begin(), all.end(), std::back_inserter(grid), OnGrid);
  return grid.empty() ? all : grid;
}

// True if a pin demands of the axis what only a config in which it applies can have.
bool ForbidsAbsence(const Pins& pins, const Axis& axis, const TrainConfig& config) {
  if (IsDetail(axis.path) || pins.find(axis.path) == pins.end()) return false;
  return std::find(axis.values.begin(), axis.values.end(), *GetField(config, axis.path)) ==
         axis.values.end();
}

// Depth-first over the axes. Where an axis does not apply, its field keeps the base's value, unless
// a pin forbids that.
class Walker {
 public:
  Walker(const Workload& workload, const TrainConfig& base, const std::vector<Axis>& axes,
         const Pins& pins, bool refine, const std::function<bool(const TrainConfig&)>& visit)
      : workload_(workload), base_(base), axes_(axes), pins_(pins), refine_(refine),
        visit_(visit) {}

  void Walk() { Descend(0, base_); }

 private:
  bool Descend(size_t depth, const TrainConfig& config) {
    if (depth == axes_.size()) return visit_(config);
    const Axis& axis = axes_[depth];
    if (!Applies(axis.path, workload_, config)) {
      if (ForbidsAbsence(pins_, axis, config)) return true;
      return Descend(depth + 1, config);
    }
    for (const Json& value : axis.values) {
      TrainConfig next = config;
      SetAxis(axis.path, value, workload_.framework, next);
      if (!Descend(depth + 1, next)) return false;
      if (axis.refines && !refine_) break;
    }
    return true;
  }

  const Workload& workload_;
  const TrainConfig& base_;
  const std::vector<Axis>& axes_;
  const Pins& pins_;
  bool refine_;
  const std::function<bool(const TrainConfig&)>& visit_;
};

// What real probes on the host do not run yet must not be measured as if they did.
absl::Status CheckHost(const Workload& w, const std::vector<Axis>& axes) {
  if (w.world_size > 1) {
    return Illegal("world_size ", w.world_size, ": the host device trains on one rank; use a "
                   "modelled device");
  }
  const TrainConfig base;
  for (const Axis& axis : axes) {
    bool lacking = axis.path.starts_with("zero.");
    for (const Json& value : axis.values) {
      if (lacking && value != *GetField(base, axis.path)) {
        return Illegal(axis.path, " ", value.dump(), ": the host device does not run it; use a "
                       "modelled device, or leave it out");
      }
    }
  }
  return absl::OkStatus();
}

// Why the pins leave nothing: what is wrong with the config that they ask for together.
absl::Status Contradiction(const Workload& w, const TrainConfig& base,
                           const std::vector<Axis>& axes) {
  TrainConfig config = base;
  for (const Axis& axis : axes) {
    if (axis.values.size() == 1) SetAxis(axis.path, axis.values[0], w.framework, config);
  }
  absl::Status status = Validate(w, config);
  if (!status.ok()) return status;
  return absl::InvalidArgumentError("the pins contradict each other: no config is left");
}

}  // namespace

absl::StatusOr<Space> Space::Create(const Workload& workload, const DeviceFacts& device,
                                    const Pins& pins) {
  absl::Status status = ValidateWorkload(workload);
  if (!status.ok()) return status;
  Space space;
  space.workload_ = workload;
  space.pins_ = pins;
  space.base_ = BaseConfig(workload.framework, device);
  absl::StatusOr<std::vector<int64_t>> batches = MicroBatches(workload, pins);
  if (!batches.ok()) return batches.status();
  space.micro_batches_ = *std::move(batches);
  if (workload.global_batch == 0 && pins.contains("grad_accum")) {
    absl::StatusOr<std::vector<int64_t>> accumulations = PinnedNumbers(pins, "grad_accum", {1});
    if (!accumulations.ok()) return accumulations.status();
    space.axes_.push_back(
        {"grad_accum", std::vector<Json>(accumulations->begin(), accumulations->end())});
  }
  std::vector<Axis> axes = DefaultAxes(workload, device);
  status = ApplyPins(workload, pins, axes);
  if (status.ok() && device.host) status = CheckHost(workload, axes);
  if (!status.ok()) return status;
  space.axes_.insert(space.axes_.end(), axes.begin(), axes.end());
  const size_t settings = space.Settings().size();
  if (settings == 0) {
    TrainConfig base = space.WithMicroBatch(space.base_, space.micro_batches_.front());
    return Contradiction(workload, base, space.axes_);
  }
  if (settings > kMostSettings) {
    return Illegal("the pins leave more than ", kMostSettings, " settings, too many to weigh "
                   "against each other: give fewer fields a list of values");
  }
  return space;
}

TrainConfig Space::WithMicroBatch(TrainConfig setting, int64_t micro_batch) const {
  setting.micro_batch = micro_batch;
  if (workload_.global_batch > 0) {
    setting.grad_accum = workload_.global_batch / workload_.world_size / micro_batch;
  }
  return setting;
}

std::vector<TrainConfig> Space::Settings() const {
  std::vector<TrainConfig> settings;
  Walk(axes_, /*refine=*/false, WithMicroBatch(base_, micro_batches_.front()),
       [&](const TrainConfig& config) {
         settings.push_back(config);
         return settings.size() <= kMostSettings;  // one more tells Create
       });
  return settings;
}

// Conditions cover fields; what only values say (cpu_adam needs a stage) is checked here.
bool Space::IsLegal(const TrainConfig& config) const {
  return pins_.empty() ? CheckValues(workload_, config).ok() : Validate(workload_, config).ok();
}

void Space::Walk(const std::vector<Axis>& axes, bool refine, const TrainConfig& base,
                 const std::function<bool(const TrainConfig&)>& visit) const {
  std::function<bool(const TrainConfig&)> checked = [&](const TrainConfig& config) {
    return IsLegal(config) ? visit(config) : true;
  };
  Walker(workload_, base, axes, pins_, refine, checked).Walk();
}

std::vector<TrainConfig> Space::Refinements(const TrainConfig& config) const {
  std::vector<TrainConfig> neighbours;
  for (const Axis& axis : axes_) {
    if (!axis.refines || !Applies(axis.path, workload_, config)) continue;
    for (const Json& value : axis.values) {
      TrainConfig next = config;
      SetAxis(axis.path, value, workload_.framework, next);
      if (*GetField(config, axis.path) != value && Validate(workload_, next).ok()) {
        neighbours.push_back(next);
      }
    }
  }
  return neighbours;
}

void Space::ForEach(const std::function<bool(const TrainConfig&)>& visit) const {
  const std::vector<int64_t> grid = Grid(micro_batches_);
  Walk(axes_, /*refine=*/true, WithMicroBatch(base_, micro_batches_.front()),
       [&](const TrainConfig& setting) {
         return std::all_of(grid.begin(), grid.end(),
                            [&](int64_t m) { return visit(WithMicroBatch(setting, m)); });
       });
}

std::optional<TrainConfig> Space::Sample(std::mt19937_64& random) const {
  auto pick = [&](const auto& values) -> const auto& { return values[random() % values.size()]; };
  const std::vector<int64_t> grid = Grid(micro_batches_);
  TrainConfig config = WithMicroBatch(base_, pick(grid));
  for (const Axis& axis : axes_) {
    const Json& value = pick(axis.values);  // drawn even where void: later draws do not shift
    if (Applies(axis.path, workload_, config)) {
      SetAxis(axis.path, value, workload_.framework, config);
    } else if (ForbidsAbsence(pins_, axis, config)) {
      return std::nullopt;
    }
  }
  if (!Validate(workload_, config).ok()) return std::nullopt;
  return config;
}

int64_t Space::Count() const {
  std::vector<Axis> deciding;
  std::vector<std::pair<Axis, int64_t>> others;  // and how many of the values are legal
  for (const Axis& axis : axes_) {
    if (DecidesOthers(axis.path)) {
      deciding.push_back(axis);
    } else {
      others.emplace_back(axis, 0);
    }
  }
  // Whether a value of the others is legal does not hang on where it is asked.
  auto legal_values = [&](const TrainConfig& config, const Axis& axis) {
    return std::count_if(axis.values.begin(), axis.values.end(), [&](const Json& value) {
      TrainConfig with = config;
      SetAxis(axis.path, value, workload_.framework, with);
      return IsLegal(with);
    });
  };
  int64_t count = 0;
  Walk(deciding, /*refine=*/true, WithMicroBatch(base_, micro_batches_.front()),
       [&](const TrainConfig& config) {
         int64_t product = 1;
         for (auto& [axis, legal] : others) {
           if (!Applies(axis.path, workload_, config)) {
             if (ForbidsAbsence(pins_, axis, config)) product = 0;
             continue;
           }
           if (legal == 0) legal = legal_values(config, axis);
           product *= legal;
         }
         count += product;
         return true;
       });
  return count * static_cast<int64_t>(Grid(micro_batches_).size());
}

bool Space::Contains(const TrainConfig& config) const {
  if (!std::binary_search(micro_batches_.begin(), micro_batches_.end(), config.micro_batch)) {
    return false;
  }
  // Follow the config's own choices down the axes: a member is what comes out in the end.
  TrainConfig member = WithMicroBatch(base_, config.micro_batch);
  for (const Axis& axis : axes_) {
    if (!Applies(axis.path, workload_, member)) {
      if (ForbidsAbsence(pins_, axis, member)) return false;
      continue;
    }
    auto chosen = std::find_if(axis.values.begin(), axis.values.end(), [&](const Json& value) {
      TrainConfig with = config;
      SetAxis(axis.path, value, workload_.framework, with);
      with.loss_scale = config.loss_scale;  // has axes of its own, precision resets it
      return ToJson(with) == ToJson(config);
    });
    if (chosen == axis.values.end()) return false;
    SetAxis(axis.path, *chosen, workload_.framework, member);
  }
  return ToJson(member) == ToJson(config) && Validate(workload_, config).ok();
}

SpaceSummary ExplainSpace(const Space& space) {
  return {space.Count(), static_cast<int64_t>(space.Settings().size()), space.axes()};
}

}  // namespace hbmtune::tuner
