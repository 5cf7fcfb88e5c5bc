#include "kernels/step/not_finite.h"

#include <cmath>
#include <optional>
#include <vector>

#include "kernels/model/parameters.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/step/gradient_norms.h"

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

std::string Layer(const ParameterEntry& entry) {
  return entry.layer < 0 ? " (outside the layers)"
                         : " (layer " + std::to_string(entry.layer) + ")";
}

std::string Describe(const ParameterEntry& entry) { return entry.name + Layer(entry); }

// Of the parameter that a state belongs to: NAME.exp_avg of NAME.
std::string Layer(const Workload& workload, const std::string& state) {
  const std::string name = state.substr(0, state.rfind('.'));
  for (const ParameterEntry& entry : WholeTable(workload)) {
    if (entry.name == name) return Layer(entry);
  }
  return "";
}

std::string When(int64_t step) { return " is not finite in step " + std::to_string(step); }

}  // namespace

std::optional<std::string> StateNotFinite(const Program& program, Executor& executor,
                                          const Workload& workload, int64_t step) {
  for (const NamedView& named : program.state) {
    const Dtype dtype = program.views[named.view].dtype;
    const bool floating = dtype == Dtype::kF32 || dtype == Dtype::kF64 || IsHalf(dtype);
    if (floating && named.name.find('.') != std::string::npos &&
        HasNotFinite(executor, named.view)) {
      return "optimizer state " + named.name + Layer(workload, named.name) + When(step);
    }
  }
  return std::nullopt;
}

std::string DescribeNotFinite(const Program& program, Executor& executor,
                              const Workload& workload, int64_t step) {
  const std::string when = When(step);
  const std::vector<ParameterEntry> table = WholeTable(workload);
  for (const NamedView& named : program.parameters) {
    if (!HasNotFinite(executor, named.view)) continue;
    for (const ParameterEntry& entry : table) {
      if (entry.name == named.name) return "weight " + Describe(entry) + when;
    }
  }
  // The backward pass reaches the last of the model first.
  const std::vector<GradientNorm> norms = GradientNorms(executor, workload);
  for (auto gradient = norms.rbegin(); gradient != norms.rend(); ++gradient) {
    if (!std::isfinite(gradient->norm)) {
      return "gradient of " + Describe(gradient->parameter) + when;
    }
  }
  return "the loss" + when + ", though weights and gradients are";
}

}  // namespace hbmtune::step
