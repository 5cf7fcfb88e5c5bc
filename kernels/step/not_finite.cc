#include "kernels/step/not_finite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/lowering/fused/parameters.h"
#include "kernels/model/parameters.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/grad_norm/grad_norm.h"

namespace hbmtune::step {
namespace {

std::vector<ParameterEntry> WholeTable(const Workload& workload) {
  std::vector<ParameterEntry> table = ParameterTable(workload.model);
  for (ParameterEntry& entry : LoraTable(workload.model, workload.lora)) {
    table.push_back(std::move(entry));
  }
  return table;
}

bool HasNotFinite(Executor& executor, ViewId view) {
  const TensorArg tensor = executor.Resolve(view);
  float flag = 0;
  const TensorArg out{&flag, Dtype::kF32, {1}, {1}};
  executor.device().Submit(kComputeStream, ops::kFinite,
                           {std::span(&tensor, 1), std::span(&out, 1), {}});
  return flag != 0;
}

// Of the trained parameters, in the model's order, the last of which a sum of squares is not
// finite: the backward pass reaches it first.
const ParameterEntry* GradientNotFinite(const std::vector<ParameterEntry>& table,
                                        Executor& executor, bool adapters) {
  const TensorArg partials = executor.Find("grad_norm_partials");
  const lowering::Partition partition{partials.shape[0], 0, 0};
  const float* sums = partials.as<float>();
  const ParameterEntry* found = nullptr;
  for (const ParameterEntry& entry : table) {
    const bool adapter =
        entry.role == ParameterRole::kLoraA || entry.role == ParameterRole::kLoraB;
    if (adapters && !adapter) continue;
    const int64_t count =
        ops::SquaresPartials(partition.PartElements(ElementCount(entry.shape)));
    for (int64_t r = 0; r < partition.ranks; ++r) {
      const float* row = sums + r * partials.shape[1];
      if (std::any_of(row, row + count, [](float x) { return !std::isfinite(x); })) {
        found = &entry;
      }
    }
    sums += count;
  }
  return found;
}

std::string Describe(const ParameterEntry& entry) {
  if (entry.layer < 0) return entry.name + " (outside the layers)";
  return entry.name + " (layer " + std::to_string(entry.layer) + ")";
}

}  // namespace

std::optional<std::string> StateNotFinite(const Program& program, Executor& executor) {
  for (const NamedView& named : program.state) {
    const Dtype dtype = program.views[named.view].dtype;
    const bool floating = dtype == Dtype::kF32 || dtype == Dtype::kF64 || IsHalf(dtype);
    if (floating && named.name.find('.') != std::string::npos &&
        HasNotFinite(executor, named.view)) {
      return "optimizer state " + named.name + " is not finite";
    }
  }
  return std::nullopt;
}

std::string DescribeNotFinite(const Program& program, Executor& executor,
                              const Workload& workload, int64_t step) {
  const std::string when = " is not finite in step " + std::to_string(step);
  const std::vector<ParameterEntry> table = WholeTable(workload);
  for (const NamedView& named : program.parameters) {
    if (!HasNotFinite(executor, named.view)) continue;
    for (const ParameterEntry& entry : table) {
      if (entry.name == named.name) return "weight " + Describe(entry) + when;
    }
  }
  if (const auto* entry = GradientNotFinite(table, executor, workload.lora.rank > 0)) {
    return "gradient of " + Describe(*entry) + when;
  }
  return "the loss" + when + ", though weights and gradients are";
}

}  // namespace hbmtune::step
