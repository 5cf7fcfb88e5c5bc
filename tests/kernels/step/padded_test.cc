// Trials whose rows are padded to the longest of their step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/core/row_lengths.h"
#include "kernels/step/trial.h"
#include "tests/kernels/lowering/small_models.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

constexpr SequenceOrder kOrders[] = {SequenceOrder::kLongestLate, SequenceOrder::kLongestFirst,
                                     SequenceOrder::kDrawn};

step::TrialRequest Request(const std::string& model = "llama") {
  step::TrialRequest request;
  request.workload = SmallWorkload(model);
  request.workload.seq_len = 64;
  request.workload.model.max_positions = 64;
  request.workload.sequences = {SequenceLayout::kPadded, 2, 0.3, SequenceOrder::kLongestLate, 8};
  request.memory_bytes = 64 << 20;
  request.config.micro_batch = 2;
  request.min_steps = request.max_steps = 8;
  request.threads = 1;  // tiny products; a busy machine punishes threads that spin
  request.poison = true;
  return request;
}

struct TrialRun {
  Measurement measurement;
  std::vector<step::StepReport> steps;
};

TrialRun RunOf(const step::TrialRequest& request) {
  TrialRun run;
  step::TrialEvents events;
  events.on_step = [&](const step::StepReport& report) { run.steps.push_back(report); };
  run.measurement = step::RunTrial(request, events);
  EXPECT_EQ(run.measurement.outcome, Outcome::kOk) << run.measurement.message;
  return run;
}

TEST(RowLengths, HaveTheMeanThatWasAskedForAndEndAtAMultiple) {
  Workload workload;
  workload.seq_len = 1000;
  workload.sequences = {SequenceLayout::kPadded, 4, 0.4, SequenceOrder::kDrawn, 64};
  TrainConfig config;
  config.micro_batch = 50;
  config.grad_accum = 20;
  RowLengths lengths(workload, config, 1, 0);
  const StepRows rows = lengths.Next();
  ASSERT_EQ(rows.lengths.size(), 1000u);
  EXPECT_NEAR(static_cast<double>(rows.tokens()) / 1000, 400, 30);
  const auto [least, most] = std::minmax_element(rows.lengths.begin(), rows.lengths.end());
  EXPECT_GE(*least, 4);
  EXPECT_GE(rows.padded_tokens, *most);
  EXPECT_LE(rows.padded_tokens, 1000);  // 1000 is no multiple of 64, and the most there is

  config.micro_batch = config.grad_accum = 1;
  RowLengths single(workload, config, 1, 0);
  for (int i = 0; i < 100; ++i) {
    const StepRows row = single.Next();
    EXPECT_TRUE(row.padded_tokens % 64 == 0 || row.padded_tokens == 1000) << row.padded_tokens;
    EXPECT_LT(row.padded_tokens - row.lengths[0], 64);
  }
  EXPECT_EQ(single.NextWithLongest().lengths[0], 1000);
}

TEST(Padded, TheLongestRowComesWhenItShould) {
  step::TrialRequest request = Request();
  request.workload.sequences.order = SequenceOrder::kLongestLate;
  const TrialRun late = RunOf(request);
  request.workload.sequences.order = SequenceOrder::kLongestFirst;
  const TrialRun first = RunOf(request);
  auto peak = [](const TrialRun& run, size_t from_end) {
    return run.steps[run.steps.size() - from_end].peak_allocated_bytes;
  };
  EXPECT_GT(peak(late, 1), peak(late, 2)) << "the last step is over all before it";
  EXPECT_EQ(peak(first, 1), first.steps[1].peak_allocated_bytes);
  EXPECT_EQ(late.measurement.steps, 8);

  request.workload.sequences.layout = SequenceLayout::kFixed;
  const TrialRun fixed = RunOf(request);
  EXPECT_EQ(peak(late, 1), peak(fixed, 1)) << "a row of seq_len takes what it takes";
  EXPECT_GE(late.measurement.peak_reserved_bytes, fixed.measurement.peak_reserved_bytes);
  EXPECT_LT(late.measurement.tokens_per_second, 8 * 2 * 64 / late.measurement.step_seconds);
}

// What is padded more must learn the same: the numbers pass from one Program to the next.
TEST(Padded, LengthOfTheRowsChangesNoLoss) {
  for (const char* model : {"llama", "falcon", "gpt2"}) {
    for (SequenceOrder order : kOrders) {
      step::TrialRequest request = Request(model);
      request.workload.sequences.order = order;
      request.config.grad_accum = 2;
      request.min_steps = request.max_steps = 12;
      request.warmup_steps = 9;  // as many steps in both, whatever shapes come
      request.optimizer.lr = 1e-3;
      const TrialRun tight = RunOf(request);
      request.workload.sequences.pad_multiple = 64;
      const TrialRun loose = RunOf(request);
      ASSERT_EQ(tight.steps.size(), loose.steps.size());
      EXPECT_LT(loose.steps.back().loss, loose.steps.front().loss * 1.2);
      for (size_t i = 0; i < tight.steps.size(); ++i) {
        EXPECT_NEAR(tight.steps[i].loss, loose.steps[i].loss, 1e-4) << model << " step " << i;
      }
    }
  }
}

TEST(Padded, ThePinnedPoolIsThatOfTheLongestRow) {
  step::TrialRequest request = Request();
  request.config.micro_batch = 16;
  request.config.offload.activations = ActivationOffload::kLayers;
  request.config.offload.pressure_ratio = 0;
  const TrialRun late = RunOf(request);
  ASSERT_GT(late.measurement.host_bytes, 0);
  request.workload.sequences.layout = SequenceLayout::kFixed;
  EXPECT_EQ(late.measurement.host_bytes, RunOf(request).measurement.host_bytes);
  request.workload.sequences.layout = SequenceLayout::kPadded;
  request.config.offload.pool_bytes = late.measurement.host_bytes * 3 / 4;  // drawn rows fit
  const Measurement refused = step::RunTrial(request);
  EXPECT_EQ(refused.outcome, Outcome::kInvalid);
  EXPECT_THAT(refused.message, HasSubstr("pinned pool"));
}

TEST(Padded, RunsOutOfMemoryOnlyWhenTheLongestRowComes) {
  step::TrialRequest request = Request();
  request.workload.seq_len = request.workload.model.max_positions = 512;
  request.workload.sequences.mean_ratio = 0.1;
  const TrialRun late = RunOf(request);
  request.memory_bytes = late.measurement.peak_allocated_bytes - 1;
  std::vector<step::StepReport> steps;
  step::TrialEvents events;
  events.on_step = [&](const step::StepReport& report) { steps.push_back(report); };
  const Measurement m = step::RunTrial(request, events);
  EXPECT_EQ(m.outcome, Outcome::kOutOfMemory);
  EXPECT_EQ(steps.size(), late.steps.size() - 1);
  EXPECT_EQ(m.steps, 8);
}

}  // namespace
}  // namespace hbmtune::testing
