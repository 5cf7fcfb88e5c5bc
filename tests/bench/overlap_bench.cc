// What activation offload costs when its copies take 80 % of the compute time: with double
// buffering they should hide behind it, without they should not. One line of JSON. An argument is
// the number of threads; with fewer than cores the copies do not take turns with the compute.

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
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

struct StepTime {
  double step = 1e9;
  double forward = 0;  // forward passes and losses of that step
};

// Adds up the time between a forward phase's begin and the backward phase's.
class ForwardClock {
 public:
  ForwardClock(step::Executor& executor, device::Device& device) : device_(device) {
    executor.set_on_phase([this](PhaseKind phase) { OnPhase(phase); });
  }
  double Take() { return std::exchange(seconds_, 0); }

 private:
  void OnPhase(PhaseKind phase) {
    if (phase == PhaseKind::kForward) begin_ = device_.Seconds();
    if (phase == PhaseKind::kBackward) seconds_ += device_.Seconds() - begin_;
  }

  device::Device& device_;
  double begin_ = 0, seconds_ = 0;
};

// The fastest of seven steps: what the machine can do when it is left alone.
StepTime TimeStep(const TrainConfig& config, double copy_bytes_per_second) {
  const Workload workload = MakeWorkload();
  const Program program = lowering::LowerFused(workload, config);
  device::HostDevice device({.memory_bytes = int64_t{8} << 30,
                             .copy_bytes_per_second = copy_bytes_per_second});
  step::Executor executor(program, device, {});
  ForwardClock clock(executor, device);
  auto data = step::SyntheticTokens(0, 0, workload.model.vocab);
  executor.set_feed([&](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
    data->Fill(ids, labels, rows, tokens);
  });
  executor.RunSetup();
  step::InitialiseWeights(executor, program, workload, 0);
  executor.RunFirstStep();
  StepTime best;
  for (int i = 0; i < 7; ++i) {
    clock.Take();
    const double begin = device.Seconds();
    executor.RunSteadyStep();
    device.Synchronize();
    const double seconds = device.Seconds() - begin;
    if (seconds < best.step) best = {seconds, clock.Take()};
  }
  return best;
}

// Of a steady step, in both directions; as many each way.
double CopiedBytes(const TrainConfig& config) {
  const Program program = lowering::LowerFused(MakeWorkload(), config);
  double bytes = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const auto* copy = std::get_if<Copy>(&program.code[i]);
    if (copy != nullptr) bytes += static_cast<double>(ByteCount(program.views[copy->from]));
  }
  return bytes;
}

// The step's cost over `none` with and without double buffering, at this rate of the link.
Json CostsAt(double copy_bytes_per_second, TrainConfig config, const StepTime& none) {
  Json json;
  json["copy_bytes_per_second"] = copy_bytes_per_second;
  for (bool double_buffer : {true, false}) {
    config.offload.double_buffer = double_buffer;
    const StepTime time = TimeStep(config, copy_bytes_per_second);
    json[double_buffer ? "cost_ratio_double_buffered" : "cost_ratio_waiting"] =
        time.step / none.step - 1;
  }
  return json;
}

int Main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  omp_set_num_threads(threads);
  TrainConfig config;
  config.micro_batch = 2;
  config.grad_accum = 2;  // the update hides no copy: less of the step is left to it
  const StepTime none = TimeStep(config, 0);
  config.offload.activations = ActivationOffload::kLayers;
  const double bytes = CopiedBytes(config);
  Json json;
  json["threads"] = threads;
  json["step_seconds"] = none.step;
  json["forward_seconds"] = none.forward;
  json["copied_bytes"] = bytes;
  // What leaves takes 80 % of the pass beside which it leaves. The way back has twice the time.
  json["out_is_80_percent_of_forward"] = CostsAt(bytes / 2 / (0.8 * none.forward), config, none);
  // Both ways together take 80 % of the step: what leaves is then more than the forward pass.
  json["both_are_80_percent_of_step"] = CostsAt(bytes / (0.8 * none.step), config, none);
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) { return hbmtune::Main(argc, argv); }
