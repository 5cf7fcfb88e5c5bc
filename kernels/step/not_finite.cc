#include "kernels/step/not_finite.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/model/parameters.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/grad_norm/grad_norm.h"

namespace hbmtune::step {
namespace {

bool HasNotFinite(Executor& executor, ViewId view) {
  const TensorArg tensor = executor.Resolve(view);
  float flag = 0;
  const TensorArg out{&flag, Dtype::kF32, {1}, {1}};
  executor.device().Submit(kComputeStream, ops::kFinite,
                           {std::span(&tensor, 1), std::span(&out, 1), {}});
  return flag != 0;
}

// Of the trained parameters, in the model's order, the last whose sum of squares is not finite:
// the backward pass reaches it first.
std::optional<std::string> GradientNotFinite(const Program& program, Executor& executor,
                                             const Workload& workload) {
  const TensorArg partials = executor.Find("grad_norm_partials");
  const float* sums = partials.as<float>();
  std::optional<std::string> found;
  for (const NamedView& named : program.parameters) {
    if (workload.lora.rank > 0 && named.name.find(".lora_") == std::string::npos) continue;
    const View& view = program.views[named.view];
    const int64_t count = ops::SquaresPartials(ElementCount(view.shape));
    if (std::any_of(sums, sums + count, [](float x) { return !std::isfinite(x); })) {
      found = named.name;
    }
    sums += count;
  }
  return found;
}

std::string WithLayer(const std::string& name, const Workload& workload) {
  std::vector<ParameterEntry> table = ParameterTable(workload.model);
  for (ParameterEntry& entry : LoraTable(workload.model, workload.lora)) {
    table.push_back(std::move(entry));
  }
  for (const ParameterEntry& entry : table) {
    if (entry.name != name) continue;
    if (entry.layer < 0) return name + " (outside the layers)";
    return name + " (layer " + std::to_string(entry.layer) + ")";
  }
  return name;
}

}  // namespace

std::string DescribeNotFinite(const Program& program, Executor& executor,
                              const Workload& workload, int64_t step) {
  const std::string when = " in step " + std::to_string(step);
  for (const NamedView& named : program.parameters) {
    if (HasNotFinite(executor, named.view)) {
      return "weight " + WithLayer(named.name, workload) + " is not finite" + when;
    }
  }
  if (auto name = GradientNotFinite(program, executor, workload)) {
    return "gradient of " + WithLayer(*name, workload) + " is not finite" + when;
  }
  return "the loss is not finite" + when + ", though weights and gradients are";
}

}  // namespace hbmtune::step
