#include <algorithm>
#include <stdexcept>

#include "kernels/core/field_path.h"
#include "tuner/space/pins.h"
#include "tuner/sweep/sweep.h"
#include "tuner/text.h"

namespace hbmtune::tuner {
namespace {

absl::Status CheckAxis(const Workload& workload, const Axis& axis) {
  TrainConfig scratch;
  if (axis.path != "precision" && !GetField(scratch, axis.path)) {
    return Illegal("there is no tunable ", axis.path);
  }
  try {
    for (const Json& value : axis.values) SetAxis(axis.path, value, workload.framework, scratch);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Grid> Grid::Create(const Workload& workload, const TrainConfig& base,
                                  const Pins& values) {
  Grid grid;
  grid.workload_ = workload;
  grid.base_ = base;
  grid.derive_accumulation_ = workload.global_batch > 0 && !values.contains("grad_accum");
  for (const auto& [path, pin] : values) {
    if (pin.is_object()) return Illegal(path, ": a grid takes values, not a range");
    Axis axis{path, {}, false};
    if (pin.is_array()) {
      axis.values.assign(pin.begin(), pin.end());
    } else {
      axis.values = {pin};
    }
    if (absl::Status status = CheckAxis(workload, axis); !status.ok()) return status;
    grid.axes_.push_back(std::move(axis));
    if (grid.Count() > kMostConfigs) {
      return Illegal("the grid has more than ", kMostConfigs, " configs: narrow it");
    }
  }
  // Allocator settings vary fastest: they share a Program.
  std::stable_partition(grid.axes_.begin(), grid.axes_.end(),
                        [](const Axis& axis) { return !axis.path.starts_with("allocator."); });
  return grid;
}

int64_t Grid::Count() const {
  int64_t count = 1;
  for (const Axis& axis : axes_) count *= static_cast<int64_t>(axis.values.size());
  return count;
}

void Grid::ForEach(const Visitor& visit) const { Descend(0, base_, visit); }

bool Grid::Descend(size_t depth, const TrainConfig& config, const Visitor& visit) const {
  if (depth == axes_.size()) {
    if (!derive_accumulation_) return visit(config);
    TrainConfig matched = config;
    const int64_t step = config.micro_batch * workload_.world_size;
    if (step > 0 && workload_.global_batch % step == 0) {
      matched.grad_accum = workload_.global_batch / step;
    }
    return visit(matched);
  }
  const Axis& axis = axes_[depth];
  for (const Json& value : axis.values) {
    TrainConfig next = config;
    SetAxis(axis.path, value, workload_.framework, next);
    if (!Descend(depth + 1, next, visit)) return false;
  }
  return true;
}

}  // namespace hbmtune::tuner
