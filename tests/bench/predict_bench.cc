#include <benchmark/benchmark.h>

#include <algorithm>

#include "kernels/device/modelled/dry_run.h"
#include "kernels/lowering/hf.h"
#include "kernels/model/presets.h"
#include "tuner/predict/predict.h"

// What an estimate costs, by its parts: the Program, its trace, the allocator, the clock.
namespace hbmtune {
namespace {

Workload Job(const char* model) {
  Workload workload;
  workload.model = *FindPreset(model);
  workload.framework = Framework::kHfSdpa;
  return workload;
}

TrainConfig Config() {
  TrainConfig config;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = Dtype::kBf16;
  config.checkpoint.every = 1;
  return config;
}

void BM_Lower(benchmark::State& state, const char* model) {
  const Workload workload = Job(model);
  for (auto _ : state) benchmark::DoNotOptimize(lowering::LowerHf(workload, Config()).code.size());
}
BENCHMARK_CAPTURE(BM_Lower, llama2_13b, "llama2-13b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Lower, llama3_70b, "llama3-70b")->Unit(benchmark::kMillisecond);

void BM_LowerFew(benchmark::State& state) {
  Workload workload = Job("llama2-13b");
  Program program;
  for (auto _ : state) {
    for (int64_t layers : {3, 4}) {
      workload.model.layers = layers;
      lowering::LowerHf(workload, Config(), {}, program);
    }
  }
}
BENCHMARK(BM_LowerFew)->Unit(benchmark::kMillisecond);

void BM_Trace(benchmark::State& state, const char* model) {
  const Program program = lowering::LowerHf(Job(model), Config());
  for (auto _ : state) benchmark::DoNotOptimize(device::TraceOf(program).ops.size());
}
BENCHMARK_CAPTURE(BM_Trace, llama2_13b, "llama2-13b")->Unit(benchmark::kMillisecond);

void BM_ReplayAllocator(benchmark::State& state, const char* model) {
  const device::StepTrace trace = device::TraceOf(lowering::LowerHf(Job(model), Config()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(device::DryRunAllocator(trace, {}).peak_reserved_bytes);
  }
}
BENCHMARK_CAPTURE(BM_ReplayAllocator, llama2_13b, "llama2-13b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_ReplayAllocator, llama3_70b, "llama3-70b")->Unit(benchmark::kMillisecond);

void BM_Clock(benchmark::State& state, const char* model) {
  const device::StepTrace trace = device::TraceOf(lowering::LowerHf(Job(model), Config()));
  const device::DeviceProfile profile = *device::FindProfile("mi210");
  for (auto _ : state) {
    benchmark::DoNotOptimize(device::DryRunClock(trace, profile, 1).step_seconds);
  }
}
BENCHMARK_CAPTURE(BM_Clock, llama2_13b, "llama2-13b")->Unit(benchmark::kMillisecond);

// A config of which nothing is kept yet, and one that differs only in allocator settings.
void BM_PredictNew(benchmark::State& state) {
  const Workload workload = Job("llama2-13b");
  const device::DeviceProfile profile = *device::FindProfile("mi210");
  TrainConfig config = Config();
  for (auto _ : state) {
    config.micro_batch = config.micro_batch % 1000 + 1;
    benchmark::DoNotOptimize(Predict(workload, config, profile, {})->fits);
  }
}
BENCHMARK(BM_PredictNew)->Unit(benchmark::kMillisecond);

void BM_PredictKnownProgram(benchmark::State& state) {
  const Workload workload = Job("llama2-13b");
  const device::DeviceProfile profile = *device::FindProfile("mi210");
  TrainConfig config = Config();
  for (auto _ : state) {
    config.allocator.max_split_size_mb = config.allocator.max_split_size_mb % 1000 + 21;
    benchmark::DoNotOptimize(Predict(workload, config, profile, {})->fits);
  }
}
BENCHMARK(BM_PredictKnownProgram)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hbmtune

BENCHMARK_MAIN();
