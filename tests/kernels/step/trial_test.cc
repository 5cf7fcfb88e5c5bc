#include "kernels/step/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/core/json.h"
#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

step::TrialRequest Request() {
  step::TrialRequest request;
  request.workload = SmallWorkload("llama");
  request.memory_bytes = 32 << 20;
  request.config.micro_batch = 2;
  request.min_steps = request.max_steps = 3;
  request.threads = 1;  // tiny products; a busy machine punishes threads that spin
  return request;
}

TEST(Trial, ReportsSpeedMemoryAndLosses) {
  std::vector<step::StepReport> reports;
  step::TrialEvents events;
  events.on_step = [&](const step::StepReport& report) { reports.push_back(report); };
  step::TrialRequest request = Request();
  request.config.grad_accum = 3;
  const Measurement m = step::RunTrial(request, events);
  ASSERT_EQ(m.outcome, Outcome::kOk) << m.message;
  EXPECT_EQ(m.steps, 3);
  ASSERT_EQ(reports.size(), 4u);  // the first is never timed
  EXPECT_EQ(m.first_loss, reports[0].loss);
  EXPECT_EQ(m.last_loss, reports[3].loss);
  EXPECT_NEAR(m.tokens_per_second * m.step_seconds, 2 * 3 * 16, 1e-6);
  int64_t sum = 0;
  for (const CategoryBytes& owner : m.breakdown) sum += owner.bytes;
  EXPECT_EQ(sum, m.peak_allocated_bytes);
  EXPECT_EQ(m.capacity_bytes, 32 << 20);
  // Steady steps have one and the same memory.
  EXPECT_EQ(reports[1].allocated_bytes, reports[3].allocated_bytes);
  EXPECT_EQ(reports[1].peak_allocated_bytes, reports[3].peak_allocated_bytes);
}

TEST(Trial, IsAFunctionOfTheSeed) {
  step::TrialRequest request = Request();
  const Measurement a = step::RunTrial(request), b = step::RunTrial(request);
  EXPECT_EQ(a.last_loss, b.last_loss);
  request.seed = 5;
  EXPECT_NE(step::RunTrial(request).last_loss, a.last_loss);
}

TEST(Trial, DoesNotDependOnTheNumberOfThreads) {
  step::TrialRequest request = Request();
  request.threads = 1;
  const Measurement one = step::RunTrial(request);
  request.threads = 2;
  EXPECT_EQ(step::RunTrial(request).last_loss, one.last_loss);
}

TEST(Trial, LeaksNothing) {
  const Workload workload = SmallWorkload("llama");
  for (int64_t every : {0, 2}) {
    TrainConfig config;
    config.grad_accum = 2;
    config.checkpoint.every = every;
    StepRun run(lowering::LowerFused(workload, config));
    run.Start(workload);
    const auto resident = run.executor().LiveStorages();
    for (int i = 0; i < 3; ++i) {
      run.Step();
      EXPECT_EQ(run.executor().LiveStorages(), resident);
    }
  }
}

TEST(Trial, OutOfMemoryHasEveryFieldAndIsRepeatable) {
  step::TrialRequest request = Request();
  request.memory_bytes = 24 << 20;
  Measurement m = step::RunTrial(request);
  EXPECT_EQ(m.outcome, Outcome::kOk) << m.message;
  request.config.micro_batch = 512;
  m = step::RunTrial(request);
  EXPECT_EQ(m.outcome, Outcome::kOutOfMemory);
  EXPECT_GT(m.requested_bytes, 0);
  EXPECT_GE(m.free_bytes, 0);
  EXPECT_LT(m.free_bytes, 20 << 20);  // the segment that PyTorch's allocator asks for
  EXPECT_GT(m.reserved_bytes, 0);
  EXPECT_GT(m.allocated_bytes, 0);
  EXPECT_LE(m.reserved_bytes + m.free_bytes, m.capacity_bytes);
  EXPECT_EQ(m.phase, "forward");
  EXPECT_FALSE(m.op.empty());
  EXPECT_GT(m.peak_allocated_bytes, 0);
  EXPECT_EQ(ToJson(step::RunTrial(request)), ToJson(m));
}

TEST(Trial, CleansUpWhereAsked) {
  step::TrialRequest request = Request();
  request.config.cleanup_every_steps = 1;
  std::vector<step::StepReport> reports;
  EXPECT_EQ(step::RunTrial(request).outcome, Outcome::kOk);
}

TEST(Trial, IsCancelledAtTheNextOperation) {
  std::atomic<bool> cancel{false};
  step::TrialEvents events;
  events.cancel = &cancel;
  events.on_step = [&](const step::StepReport& report) { cancel = report.index == 1; };
  step::TrialRequest request = Request();
  request.max_steps = request.min_steps = 1'000'000;
  const Measurement m = step::RunTrial(request, events);
  EXPECT_EQ(m.outcome, Outcome::kCancelled);
  EXPECT_EQ(m.steps, 1);
}

struct BadInput {
  const char* sentence;
  void (*spoil)(step::TrialRequest&);
};

TEST(Trial, RefusesBadInputWithASentence) {
  const BadInput cases[] = {
      {"micro_batch must be at least 1, got 0", [](auto& r) { r.config.micro_batch = 0; }},
      {"grad_accum must be at least 1, got -1", [](auto& r) { r.config.grad_accum = -1; }},
      {"seq_len 65 is over the 64 positions", [](auto& r) { r.workload.seq_len = 65; }},
      {"seq_len must be at least 2", [](auto& r) { r.workload.seq_len = 0; }},
      {"has 4 attention heads, which its 3 key and value heads do not divide",
       [](auto& r) { r.workload.model.kv_heads = 3; }},
      {"has heads 7 wide: rotary positions need an even width",
       [](auto& r) { r.workload.model.head_dim = 7; }},
      {"global_batch is 7", [](auto& r) { r.workload.global_batch = 7; }},
      {"checkpoint.every must be at least 0", [](auto& r) { r.config.checkpoint.every = -1; }},
      {"excludes", [](auto& r) { r.config.checkpoint = {.every = 1, .attention = 1}; }},
      {"hf-sdpa", [](auto& r) { r.workload.framework = Framework::kHfSdpa; }},
      {"loss_chunk_tokens", [](auto& r) { r.config.loss_chunk_tokens = -1; }},
      {"promotion", [](auto& r) { r.config.promotion.grad_norm_threshold = -1e-4; }},
      {"memory budget", [](auto& r) { r.memory_bytes = 0; }},
      {"targets", [](auto& r) { r.workload.lora = {.rank = 2, .targets = "everything"}; }},
  };
  for (const BadInput& bad : cases) {
    step::TrialRequest request = Request();
    bad.spoil(request);
    const Measurement m = step::RunTrial(request);
    EXPECT_EQ(m.outcome, Outcome::kInvalid) << bad.sentence;
    EXPECT_THAT(m.message, HasSubstr(bad.sentence));
  }
}

TEST(PaddedTokens, HaveLabelsUpToTheLengthOfTheirRow) {
  auto data = step::PaddedTokens(1, 0, 64);
  data->BeginStep({{3, 32, 1}, 32});
  std::vector<int64_t> ids(2 * 32), labels(2 * 32);
  data->Fill(ids.data(), labels.data(), 2, 32);
  EXPECT_NE(labels[2], -100);
  EXPECT_EQ(labels[3], -100);
  EXPECT_NE(labels[63], -100);
  data->Fill(ids.data(), labels.data(), 1, 32);
  EXPECT_EQ(labels[1], -100);
  EXPECT_THROW(data->Fill(ids.data(), labels.data(), 1, 32), std::logic_error);
}

TEST(Trial, PackedRowsTakeTheMemoryOfFullRowsAndTheirStarts) {
  step::TrialRequest request = Request();
  const Measurement fixed = step::RunTrial(request);
  request.workload.sequences = {SequenceLayout::kPacked, 2, 0.3};
  const Measurement packed = step::RunTrial(request);
  EXPECT_EQ(packed.outcome, Outcome::kOk) << packed.message;
  EXPECT_TRUE(std::isfinite(packed.last_loss));
  EXPECT_GT(packed.peak_allocated_bytes, fixed.peak_allocated_bytes);
  const int64_t starts_bytes =
      request.config.micro_batch * request.workload.seq_len * int64_t{sizeof(int64_t)};
  EXPECT_LE(packed.peak_allocated_bytes, fixed.peak_allocated_bytes + starts_bytes + 512);
}

TEST(Trial, ChunkedLossIsTheUnchunkedLoss) {
  step::TrialRequest request = Request();
  const Measurement whole = step::RunTrial(request);
  for (int64_t chunk : {1, 7, 16, 31, 1000}) {
    request.config.loss_chunk_tokens = chunk;
    const Measurement chunked = step::RunTrial(request);
    EXPECT_EQ(chunked.first_loss, whole.first_loss) << chunk;
    EXPECT_NEAR(chunked.last_loss, whole.last_loss, 1e-6 * whole.last_loss) << chunk;
  }
}

TEST(Trial, AccumulatedMicroBatchesAreOneBatch) {
  const Workload workload = SmallWorkload("llama");
  std::vector<double> gradients[2];
  for (int i = 0; i < 2; ++i) {
    TrainConfig config;
    config.micro_batch = i == 0 ? 4 : 1;
    config.grad_accum = i == 0 ? 1 : 4;
    lowering::FusedOptions options;
    options.keep_gradients = true;
    StepRun run(lowering::LowerFused(workload, config, options));
    run.Start(workload);
    run.Step();
    for (const NamedView& named : run.program().parameters) {
      for (double x : run.Values(named.name + ".grad")) gradients[i].push_back(x);
    }
  }
  EXPECT_LT(RelativeError(gradients[1], gradients[0]), 1e-6);
}

}  // namespace
}  // namespace hbmtune::testing
