#include "kernels/step/gradient_norms.h"

#include <cmath>

#include "kernels/lowering/fused/parameters.h"
#include "kernels/ops/grad_norm/grad_norm.h"

namespace hbmtune::step {
namespace {

std::vector<double> Download(Executor& executor, const char* name) {
  const TensorArg tensor = executor.Find(name);
  if (tensor.dtype == Dtype::kF64) {
    std::vector<double> values(tensor.elements());
    executor.device().Download(tensor, values.data());
    return values;
  }
  std::vector<float> values(tensor.elements());
  executor.device().Download(tensor, values.data());
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<GradientNorm> GradientNorms(Executor& executor, const Workload& workload) {
  std::vector<ParameterEntry> table = LoraTable(workload.model, workload.lora);
  if (table.empty()) table = ParameterTable(workload.model);
  const std::vector<double> partials = Download(executor, "grad_norm_partials");
  const int64_t ranks = workload.world_size;
  const int64_t width = static_cast<int64_t>(partials.size()) / ranks;
  const lowering::Partition partition{ranks, 0, 0};
  std::vector<GradientNorm> norms;
  double all = 0;
  int64_t begin = 0;
  for (const ParameterEntry& entry : table) {
    const int64_t end =
        begin + ops::SquaresPartials(partition.PartElements(ElementCount(entry.shape)));
    double squares = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      for (int64_t i = begin; i < end; ++i) squares += partials[r * width + i];
    }
    norms.push_back({entry, std::sqrt(squares)});
    all += squares;
    begin = end;
  }
  // The sums are of gradients as they are scaled with fp16; the norm in `control` is not.
  const double unscaled = Download(executor, "control")[ops::kControlNorm];
  if (!(all > 0) || !std::isfinite(all) || !std::isfinite(unscaled)) return norms;
  for (GradientNorm& gradient : norms) gradient.norm *= unscaled / std::sqrt(all);
  return norms;
}

}  // namespace hbmtune::step
