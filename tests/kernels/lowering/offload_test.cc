// Offloading changes where memory is, never a bit of the result.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::map<std::string, std::string> bits;
  step::MemoryPeaks peaks;
  int64_t pinned_bytes = 0;
};

// Copies at a modest rate, so that a missing wait has time to show; freed memory is poisoned.
Outcome Train(const Workload& workload, const TrainConfig& config) {
  StepRun run(lowering::LowerFused(workload, config), true,
              {.memory_bytes = 64 << 20, .copy_bytes_per_second = 200e6});
  run.Start(workload);
  for (int i = 0; i < 3; ++i) run.Step();
  return {run.Bits(), run.executor().Peaks(), run.executor().pinned_bytes()};
}

Workload WideWorkload(const std::string& name = "llama") {
  Workload workload = SmallWorkload(name);
  workload.seq_len = 64;  // so that activations are over the size that goes away
  return workload;
}

TrainConfig Config() {
  TrainConfig config;
  config.micro_batch = 4;
  config.grad_accum = 2;
  return config;
}

void ExpectSame(const Outcome& a, const Outcome& b, const std::string& what) {
  for (const auto& [name, bits] : a.bits) {
    ASSERT_TRUE(b.bits.contains(name)) << what << name;
    EXPECT_TRUE(bits == b.bits.at(name)) << what << name;
  }
}

int64_t Bytes(const Outcome& outcome, Category category) {
  for (const CategoryBytes& owner : outcome.peaks.breakdown) {
    if (owner.category == category) return owner.bytes;
  }
  return 0;
}

TEST(ActivationOffload, AnyWayIsBitwiseNone) {
  for (const char* model : {"llama", "falcon", "gpt2_dropout", "llama_lora"}) {
    const Workload workload = WideWorkload(model);
    for (int64_t every : {0, 1, 2}) {
      TrainConfig config = Config();
      config.checkpoint.every = every;
      const Outcome none = Train(workload, config);
      for (ActivationOffload kind : {ActivationOffload::kLayers, ActivationOffload::kCheckpoints}) {
        if (kind == ActivationOffload::kCheckpoints && every == 0) continue;
        for (bool double_buffer : {true, false}) {
          config.offload.activations = kind;
          config.offload.double_buffer = double_buffer;
          const Outcome away = Train(workload, config);
          const std::string what = std::string(model) + " every " + std::to_string(every) + ": ";
          ExpectSame(none, away, what);
          EXPECT_GT(away.pinned_bytes, 0) << what;
        }
      }
    }
  }
}

TEST(ActivationOffload, FreesDeviceMemory) {
  const Workload workload = WideWorkload();
  TrainConfig config = Config();
  const Outcome none = Train(workload, config);
  config.offload.activations = ActivationOffload::kLayers;
  const Outcome away = Train(workload, config);
  // Of 8 layers the first, two that leave and the running one are there at most.
  EXPECT_LT(Bytes(away, Category::kActivations), Bytes(none, Category::kActivations) * 5 / 8);
  EXPECT_LT(away.peaks.allocated_bytes, none.peaks.allocated_bytes);
}

TEST(ActivationOffload, KeepsTheEndsAndFollowsThePressure) {
  const Workload workload = WideWorkload();
  TrainConfig config = Config();
  config.offload.activations = ActivationOffload::kLayers;
  config.offload.keep_ratio = 0.25;  // 2 of 8 layers at each end
  auto copies = [&](int64_t device_bytes) {
    lowering::FusedOptions options;
    options.device_bytes = device_bytes;
    const Program program = lowering::LowerFused(workload, config, options);
    int count = 0;
    for (size_t i = program.steady_step; i < program.code.size(); ++i) {
      count += std::holds_alternative<Copy>(program.code[i]);
    }
    return count;
  };
  const int all_middle = copies(0);
  // x, q, k, v, heads, x, gate, up of 4 layers, there and back, in 2 micro-batches.
  EXPECT_EQ(all_middle % (2 * 2 * 4), 0);
  EXPECT_GT(all_middle, 0);
  EXPECT_EQ(copies(int64_t{1} << 40), 0);  // no pressure
  EXPECT_EQ(copies(1 << 10), all_middle);
  const int64_t some = Train(workload, Config()).peaks.allocated_bytes;
  EXPECT_LT(copies(some), all_middle);
  EXPECT_GT(copies(some), 0);
}

// Ops of the compute stream between the record of what leaves and the compute stream's wait for
// it (out), and between the record of what comes back and its wait (in), of a steady step.
struct OpsBeside {
  std::vector<int> out, in;
};

OpsBeside CountOpsBeside(const Program& program) {
  std::map<EventId, std::pair<StreamId, int>> recorded;
  OpsBeside beside;
  int ops = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (const auto* run = std::get_if<hbmtune::Run>(&instruction)) {
      ops += run->stream == kComputeStream;
    } else if (const auto* record = std::get_if<Record>(&instruction)) {
      recorded[record->event] = {record->stream, ops};
    } else if (const auto* wait = std::get_if<Wait>(&instruction)) {
      const auto [stream, then] = recorded.at(wait->event);
      if (wait->stream != kComputeStream || stream == kComputeStream) continue;
      (stream == kCopyOutStream ? beside.out : beside.in).push_back(ops - then);
    }
  }
  return beside;
}

TEST(ActivationOffload, TravelsBesideWholeLayersOfComputeUnlessToldToWait) {
  TrainConfig config = Config();
  config.offload.activations = ActivationOffload::kLayers;
  const OpsBeside beside = CountOpsBeside(lowering::LowerFused(WideWorkload(), config));
  // Norm, q, k, v, 2 rotations, attention, o, residual; norm, gate, up, product, down, residual.
  constexpr int kForwardOps = 15;
  const size_t travellers = 2 * 5;  // micro-batches; of 8 layers 1 stays at the start, 2 at the end
  EXPECT_THAT(beside.out, ::testing::Each(2 * kForwardOps));
  EXPECT_EQ(beside.out.size(), travellers);
  EXPECT_THAT(beside.in, ::testing::Each(::testing::Ge(kForwardOps)));
  EXPECT_EQ(beside.in.size(), travellers);

  config.offload.double_buffer = false;
  const OpsBeside waiting = CountOpsBeside(lowering::LowerFused(WideWorkload(), config));
  EXPECT_THAT(waiting.out, ::testing::Each(0));
  EXPECT_THAT(waiting.in, ::testing::Each(0));
  EXPECT_EQ(waiting.out.size(), travellers);
}

TEST(ActivationOffload, APoolThatIsTooSmallIsRefusedBeforeTheFirstStep) {
  const Workload workload = WideWorkload();
  TrainConfig config = Config();
  config.offload.activations = ActivationOffload::kLayers;
  const Program program = lowering::LowerFused(workload, config);
  device::HostDevice device({.memory_bytes = 64 << 20});
  try {
    step::Executor executor(program, device, {}, {.poison = false, .pool_bytes = 4096});
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("pinned pool of 4.00 KiB is too small"));
  }
}

TEST(ActivationOffload, RefusesWhatItDoesNotGoWith) {
  TrainConfig config = Config();
  config.offload.activations = ActivationOffload::kCheckpoints;
  EXPECT_THROW(lowering::LowerFused(WideWorkload(), config), std::invalid_argument);
  config.offload.activations = ActivationOffload::kLayers;
  config.checkpoint.mlp = 2;
  EXPECT_THROW(lowering::LowerFused(WideWorkload(), config), std::invalid_argument);
}

struct OptimizerCase {
  OptimizerOffload offload;
  Optimizer optimizer = Optimizer::kAdamw;
  bool half = false;
};

class OptimizerOffloading : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(OptimizerOffloading, IsBitwiseNoneAndFreesDeviceMemory) {
  for (const char* model : {"llama", "gpt2", "llama_lora"}) {
    Workload workload = SmallWorkload(model);
    workload.optimizer = GetParam().optimizer;
    TrainConfig config = Config();
    if (GetParam().half) {
      config.param_dtype = config.compute_dtype = Dtype::kBf16;
      config.master_weights = true;
    }
    const Outcome none = Train(workload, config);
    for (bool double_buffer : {true, false}) {
      config.offload.optimizer = GetParam().offload;
      config.offload.double_buffer = double_buffer;
      const Outcome away = Train(workload, config);
      ExpectSame(none, away, std::string(model) + ": ");
      EXPECT_LT(Bytes(away, Category::kOptimizer), Bytes(none, Category::kOptimizer));
      EXPECT_GT(away.pinned_bytes, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, OptimizerOffloading,
    ::testing::Values(OptimizerCase{OptimizerOffload::kStream},
                      OptimizerCase{OptimizerOffload::kStream, Optimizer::kAdamw, true},
                      OptimizerCase{OptimizerOffload::kStream, Optimizer::kAdamw8bit},
                      OptimizerCase{OptimizerOffload::kStream, Optimizer::kSgd},
                      OptimizerCase{OptimizerOffload::kCpuAdam},
                      OptimizerCase{OptimizerOffload::kCpuAdam, Optimizer::kAdamw, true},
                      OptimizerCase{OptimizerOffload::kCpuAdam, Optimizer::kAdamw8bit},
                      OptimizerCase{OptimizerOffload::kCpuAdam, Optimizer::kSgd}),
    [](const auto& info) {
      const OptimizerCase& c = info.param;
      return std::string(c.offload == OptimizerOffload::kStream ? "stream" : "cpu") +
             std::to_string(static_cast<int>(c.optimizer)) + (c.half ? "_bf16" : "");
    });

}  // namespace
}  // namespace hbmtune::testing
