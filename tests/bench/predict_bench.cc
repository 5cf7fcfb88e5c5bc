#include <benchmark/benchmark.h>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

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

// As an estimate keeps it: the trace is in memory, and every allocation of it is played.
void BM_ReplayAllocator(benchmark::State& state, const char* model) {
  const device::FoldedTrace trace =
      device::Folded(device::TraceOf(lowering::LowerHf(Job(model), Config())));
  state.counters["steady_steps"] =
      static_cast<double>(device::DryRunAllocator(trace, {}).steady_steps);
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
void BM_PredictNew(benchmark::State& state, const char* model) {
  const Workload workload = Job(model);
  const device::DeviceProfile profile = *device::FindProfile("mi210");
  TrainConfig config = Config();
  for (auto _ : state) {
    config.micro_batch = config.micro_batch % 1000 + 1;
    benchmark::DoNotOptimize(Predict(workload, config, profile, {})->fits);
  }
}
BENCHMARK_CAPTURE(BM_PredictNew, llama2_13b, "llama2-13b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_PredictNew, llama3_70b, "llama3-70b")->Unit(benchmark::kMillisecond);

// DeepSpeed counts elements, so that its Programs are lowered whole.
void BM_PredictDeepspeed(benchmark::State& state, const char* model, int64_t stage) {
  Workload workload = Job(model);
  workload.framework = Framework::kHfSdpaDeepspeed;
  workload.world_size = 64;
  const device::DeviceProfile profile = *device::FindProfile("mi300x");
  TrainConfig config = Config();
  config.optimizer_state_dtype = Dtype::kF32;
  config.master_weights = true;
  config.zero.stage = stage;
  for (auto _ : state) {
    config.micro_batch = config.micro_batch % 1000 + 1;
    const Estimate estimate = *Predict(workload, config, profile, {});
    if (config.micro_batch != 2) continue;
    state.counters["allocated_gib"] =
        static_cast<double>(estimate.peak_allocated_bytes) / (int64_t{1} << 30);
    state.counters["reserved_gib"] =
        static_cast<double>(estimate.peak_reserved_bytes) / (int64_t{1} << 30);
  }
}
BENCHMARK_CAPTURE(BM_PredictDeepspeed, llama2_13b_zero2, "llama2-13b", 2)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_PredictDeepspeed, llama3_70b_zero3, "llama3-70b", 3)
    ->Unit(benchmark::kMillisecond);

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

// The allocated peak from traces of three and four layers; with their lowering, and without.
void BM_FoldPeak(benchmark::State& state, const char* model, bool lowers) {
  Workload few = Job(model), one_more = few;
  const int64_t more = few.model.layers - 3;
  few.model.layers = 3;
  one_more.model.layers = 4;
  Program program;
  auto trace = [&](const Workload& workload) {
    lowering::LowerHf(workload, Config(), {}, program);
    return device::TraceOf(program);
  };
  device::StepTrace shorter = trace(few), longer = trace(one_more);
  for (auto _ : state) {
    if (lowers) {
      shorter = trace(few);
      longer = trace(one_more);
    }
    const auto folded = device::Fold(shorter, longer, more);
    benchmark::DoNotOptimize(device::PeakOfBlocks(*folded, {}).bytes);
  }
}
BENCHMARK_CAPTURE(BM_FoldPeak, llama2_13b, "llama2-13b", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_FoldPeak, llama3_70b, "llama3-70b", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_FoldPeak, lowered_13b, "llama2-13b", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_FoldPeak, lowered_70b, "llama3-70b", true)->Unit(benchmark::kMillisecond);

// A grid as users sweep it: 10,000 configs, of which 1,429 are Programs of their own.
std::vector<std::pair<Workload, TrainConfig>> Grid() {
  std::vector<std::pair<Workload, TrainConfig>> grid;
  Workload workload = Job("llama2-13b");
  TrainConfig config = Config();
  for (int64_t seq_len : {512, 1024, 2048, 3072, 4096}) {
    for (Framework framework : {Framework::kHfSdpa, Framework::kHfEager}) {
      for (config.micro_batch = 1; config.micro_batch <= 20; ++config.micro_batch) {
        for (int64_t every : {0, 1}) {
          for (OptimizerLoop loop : {OptimizerLoop::kFused, OptimizerLoop::kForeach}) {
            for (Dtype param : {Dtype::kBf16, Dtype::kF32}) {
              for (int64_t accum : {2, 3, 4, 6, 8, 12, 16}) {
                workload.seq_len = seq_len;
                workload.framework = framework;
                config.checkpoint.every = every;
                config.optimizer_loop = loop;
                config.param_dtype = config.optimizer_state_dtype = param;
                config.grad_accum = accum;
                grid.push_back({workload, config});
              }
            }
          }
        }
      }
    }
  }
  grid.resize(10000);
  return grid;
}

void BM_Sweep(benchmark::State& state) {
  const auto grid = Grid();
  const device::DeviceProfile profile = *device::FindProfile("mi300x");
  for (auto _ : state) {
    std::atomic<size_t> fits{0};
    auto work = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        fits += Predict(grid[i].first, grid[i].second, profile, {})->fits;
      }
    };
    std::thread second(work, grid.size() / 2, grid.size());  // halves share no Program
    work(0, grid.size() / 2);
    second.join();
    state.counters["fits"] = static_cast<double>(fits.load());
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_rss_mib"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_Sweep)->Unit(benchmark::kSecond)->Iterations(1)->MeasureProcessCPUTime();

}  // namespace
}  // namespace hbmtune

BENCHMARK_MAIN();
