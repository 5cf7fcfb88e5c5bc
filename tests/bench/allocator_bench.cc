// Cost of the caching allocator. Goals: a pair of alloc and free ≤ 160 ns at 10,000 live blocks;
// a trace of 16,800 events in about 1 ms.

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/core/units.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/modelled_source.h"
#include "kernels/memory/replay.h"

namespace hbmtune::memory {
namespace {

int64_t RandomBytes(std::mt19937_64& random) {
  return 1 + static_cast<int64_t>(random() % (uint64_t{1} << (9 + random() % 15)));
}

// Replaces a random live block by one of another size, with `live` blocks alive.
void BM_AllocFreePair(benchmark::State& state) {
  ModelledSource source(int64_t{1} << 42);
  EventsAtOnce events;
  CachingAllocator allocator({}, source, events);
  std::mt19937_64 random(1);
  std::vector<Block*> live(state.range(0));
  for (Block*& block : live) block = allocator.Allocate(RandomBytes(random), Category::kWeights);
  std::vector<std::pair<uint32_t, int32_t>> plan(1 << 16);
  for (auto& [victim, bytes] : plan) {
    victim = static_cast<uint32_t>(random() % live.size());
    bytes = static_cast<int32_t>(RandomBytes(random));
  }
  size_t step = 0;
  for (auto _ : state) {
    auto [victim, bytes] = plan[step++ & (plan.size() - 1)];
    allocator.Free(live[victim]);
    live[victim] = allocator.Allocate(bytes, Category::kActivations);
  }
}
BENCHMARK(BM_AllocFreePair)->Arg(100)->Arg(1000)->Arg(10000)->Arg(100000);

// A temporary comes and goes: the commonest pair in a training step.
void BM_AllocFreeTemporary(benchmark::State& state) {
  ModelledSource source(int64_t{1} << 42);
  EventsAtOnce events;
  CachingAllocator allocator({}, source, events);
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < state.range(0); ++i) {
    allocator.Allocate(RandomBytes(random), Category::kWeights);
  }
  for (auto _ : state) allocator.Free(allocator.Allocate(3 * kMiB, Category::kActivations));
}
BENCHMARK(BM_AllocFreeTemporary)->Arg(10000);

// Layers whose activations stay until the backward pass, with temporaries: 16,800 events.
Trace TrainingStep(int64_t layers, int64_t allocations_per_layer) {
  Trace trace;
  std::vector<int32_t> saved;
  auto add = [&](TraceEvent::Kind kind, int32_t slot, int64_t bytes) {
    trace.events.push_back({.kind = kind, .slot = slot, .bytes = bytes});
  };
  std::vector<int64_t> sizes;
  std::mt19937_64 random(1);
  for (int64_t i = 0; i < allocations_per_layer; ++i) {
    sizes.push_back(random() % 4 == 0 ? 4096 : static_cast<int64_t>(1 + random() % 8) * 8 * kMiB);
  }
  int32_t temporary = static_cast<int32_t>(layers * allocations_per_layer);
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t bytes : sizes) {
      auto slot = static_cast<int32_t>(saved.size());
      add(TraceEvent::Kind::kAlloc, slot, bytes);
      add(TraceEvent::Kind::kAlloc, temporary, bytes / 2);
      add(TraceEvent::Kind::kFree, temporary, 0);
      saved.push_back(slot);
    }
  }
  while (!saved.empty()) {
    add(TraceEvent::Kind::kAlloc, temporary, sizes[saved.size() % sizes.size()]);
    add(TraceEvent::Kind::kFree, saved.back(), 0);
    add(TraceEvent::Kind::kFree, temporary, 0);
    saved.pop_back();
  }
  trace.slots = temporary + 1;
  trace.capacity_bytes = int64_t{1} << 40;
  return trace;
}

void BM_ReplayTrainingStep(benchmark::State& state) {
  Trace trace = TrainingStep(80, 35);
  trace.config.expandable_segments = state.range(0) != 0;
  TraceReplay replay(trace);
  for (auto _ : state) replay.Run();
  state.counters["events"] = static_cast<double>(trace.events.size());
}
BENCHMARK(BM_ReplayTrainingStep)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_ConstructUseDestroy(benchmark::State& state) {
  EventsAtOnce events;
  for (auto _ : state) {
    ModelledSource source(int64_t{64} << 30);
    CachingAllocator allocator({}, source, events);
    for (int i = 0; i < 10; ++i) allocator.Allocate(30 * kMiB, Category::kWeights);
  }
}
BENCHMARK(BM_ConstructUseDestroy);

}  // namespace
}  // namespace hbmtune::memory

BENCHMARK_MAIN();
