// What activation offload costs when its copies take 80 % of the compute time: with double
// buffering they should hide behind it, without they should not. One line of JSON.

#include <algorithm>
#include <cstdio>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/device/host/host_device.h"
#include "kernels/lowering/fused.h"
#include "kernels/step/data.h"
#include "kernels/step/executor.h"
#include "kernels/step/weights.h"

namespace hbmtune {
namespace {

Workload MakeWorkload() {
  Workload workload;
  ModelSpec& model = workload.model;
  model.hidden = 512;
  model.layers = 12;
  model.heads = model.kv_heads = 8;
  model.head_dim = 64;
  model.ffn = 1376;
  model.vocab = 1024;
  model.max_positions = workload.seq_len = 256;
  return workload;
}

// The fastest of five steps: what the machine can do when it is left alone.
double StepSeconds(const TrainConfig& config, double copy_bytes_per_second) {
  const Workload workload = MakeWorkload();
  const Program program = lowering::LowerFused(workload, config);
  device::HostDevice device({.memory_bytes = int64_t{8} << 30,
                             .copy_bytes_per_second = copy_bytes_per_second});
  step::Executor executor(program, device, {});
  auto data = step::SyntheticTokens(0, 0, workload.model.vocab);
  executor.set_feed([&](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
    data->Fill(ids, labels, rows, tokens);
  });
  executor.RunSetup();
  step::InitialiseWeights(executor, program, workload, 0);
  executor.RunFirstStep();
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = device.Seconds();
    executor.RunSteadyStep();
    device.Synchronize();
    best = std::min(best, device.Seconds() - begin);
  }
  return best;
}

double CopiedBytes(const TrainConfig& config) {
  const Program program = lowering::LowerFused(MakeWorkload(), config);
  double bytes = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* copy = std::get_if<Copy>(&program.code[i]);
    if (copy != nullptr) bytes += static_cast<double>(ByteCount(program.views[copy->from]));
  }
  return bytes;
}

int Main() {
  TrainConfig config;
  config.micro_batch = 2;
  const double none = StepSeconds(config, 0);
  config.offload.activations = ActivationOffload::kLayers;
  const double rate = CopiedBytes(config) / (0.8 * none);
  const double overlapped = StepSeconds(config, rate);
  config.offload.double_buffer = false;
  const double waiting = StepSeconds(config, rate);
  Json json;
  json["step_seconds"] = none;
  json["copied_bytes"] = CopiedBytes(config);
  json["copy_bytes_per_second"] = rate;
  json["cost_ratio_double_buffered"] = overlapped / none - 1;
  json["cost_ratio_waiting"] = waiting / none - 1;
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace hbmtune

int main() { return hbmtune::Main(); }
