#include "client/progress.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hbmtune::client {
namespace {

using std::chrono::seconds;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() {
    study_.set_name("studies/7");
    study_.set_state(v1::STUDY_STATE_RUNNING);
    study_.set_budget_seconds(60);
    v1::Progress& progress = *study_.mutable_progress();
    progress.set_finished_trials(4);
    progress.set_expected_trials(12);
    progress.set_elapsed_seconds(30);
    progress.set_remaining_seconds(30);
    progress.set_best_tokens_per_second(1234);
    progress.set_trying("micro-batch 8");
  }

  Terminal terminal_{stdout, false, false, 80};
  ProgressView view_{terminal_, ProgressView::Plain::kNothing};
  ProgressView::Clock::time_point start_ = ProgressView::Clock::now();
  v1::Study study_;
};

TEST_F(ProgressTest, TheLineSaysTrialsBestTimeLeftAndWhatIsTried) {
  view_.OnStudy(study_, start_);
  EXPECT_EQ(view_.Line(start_),
            " ▕██████      ▏ 4/12 trials · best 1,234 tok/s · 30 s left · micro-batch 8");
}

TEST_F(ProgressTest, TimeGoesOnWithoutNews) {
  view_.OnStudy(study_, start_);
  EXPECT_EQ(view_.Line(start_ + seconds(10)),
            " ▕████████    ▏ 4/12 trials · best 1,234 tok/s · 20 s left · micro-batch 8");
}

TEST_F(ProgressTest, StepsOfTheRunningProbeAreToldUntilItEnds) {
  view_.OnStudy(study_, start_);
  v1::TrialProgress step;
  step.set_step(2);
  view_.OnTrialProgress(step, start_);
  EXPECT_NE(view_.Line(start_).find("micro-batch 8, step 3"), std::string::npos);
  view_.OnTrialFinished(v1::Trial());
  EXPECT_EQ(view_.Line(start_).find("step"), std::string::npos);
}

TEST_F(ProgressTest, WithoutABudgetTheTimeSpentIsShown) {
  study_.set_budget_seconds(0);
  study_.mutable_progress()->set_remaining_seconds(0);
  study_.mutable_progress()->set_best_tokens_per_second(0);
  view_.OnStudy(study_, start_);
  EXPECT_EQ(view_.Line(start_),
            " ▕████        ▏ 4/12 trials · nothing fits yet · 30 s · micro-batch 8");
}

TEST_F(ProgressTest, AnEndedStudyIsFull) {
  study_.set_state(v1::STUDY_STATE_SUCCEEDED);
  study_.mutable_progress()->set_finished_trials(12);
  study_.mutable_progress()->set_elapsed_seconds(3.1);
  view_.OnStudy(study_, start_);
  EXPECT_EQ(view_.Line(start_ + seconds(99)),
            " ▕████████████▏ 12/12 trials · best 1,234 tok/s · 3.1 s");
}

TEST_F(ProgressTest, BeforeATrialHasEndedNothingIsSaidOfWhatFits) {
  study_.mutable_progress()->clear_finished_trials();
  study_.mutable_progress()->clear_best_tokens_per_second();
  view_.OnStudy(study_, start_);
  EXPECT_EQ(view_.Line(start_).find("nothing fits"), std::string::npos);
  study_.set_state(v1::STUDY_STATE_CANCELLED);
  view_.OnStudy(study_, start_);
  EXPECT_NE(view_.Line(start_).find("▏ 0/12 trials · 30 s · cancelled"), std::string::npos);
  study_.set_state(v1::STUDY_STATE_SUCCEEDED);  // all was estimated, none was worth a probe
  view_.OnStudy(study_, start_);
  EXPECT_NE(view_.Line(start_).find("nothing fits"), std::string::npos);
}

TEST_F(ProgressTest, ARunningStudyThatWaitsForItsDeviceSaysWhy) {
  study_.set_message("waits: job train holds host");
  view_.OnStudy(study_, start_);
  EXPECT_NE(view_.Line(start_).find("30 s left · waits: job train holds host"),
            std::string::npos);
}

TEST_F(ProgressTest, AQueuedStudySaysWhatItWaitsFor) {
  study_.set_state(v1::STUDY_STATE_QUEUED);
  study_.set_message("study 6 runs on host");
  view_.OnStudy(study_, start_);
  EXPECT_NE(view_.Line(start_).find("waiting: study 6 runs on host"), std::string::npos);
  study_.clear_message();
  study_.mutable_progress()->Clear();
  view_.OnStudy(study_, start_);
  EXPECT_TRUE(view_.Line(start_).ends_with(" 0 trials · waiting")) << view_.Line(start_);
}

// What a note says on stderr of these studies, one after the other.
std::string Noted(const std::vector<v1::Study>& studies) {
  WaitNote note;
  ::testing::internal::CaptureStderr();
  for (const v1::Study& study : studies) note.OnStudy(study);
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(ProgressTest, WhatAStudyWaitsForIsNotedWhenItChanges) {
  v1::Study made = study_, queued = study_, held = study_, ended = study_;
  made.set_state(v1::STUDY_STATE_QUEUED);
  queued.set_state(v1::STUDY_STATE_QUEUED);
  queued.set_message("study 6 runs on host");
  held.set_message("waits: job train holds\nhost");
  ended.set_state(v1::STUDY_STATE_SUCCEEDED);
  ended.set_message("no config is expected to be faster");
  EXPECT_EQ(Noted({made, queued, queued, held, study_, study_, ended}),
            "hbmtune: study 7: waiting: study 6 runs on host\n"
            "hbmtune: study 7: waits: job train holds?host\n"
            "hbmtune: study 7: goes on\n");
  EXPECT_EQ(Noted({made, study_, ended}), "");
}

TEST_F(ProgressTest, WhereThereIsATerminalTheLiveLineSaysSo) {
  study_.set_message("waits: job train holds host");
  Terminal wide{stdout, true, false, 80};
  ProgressView on_terminal{wide, ProgressView::Plain::kLines};
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  on_terminal.OnStudy(study_, start_);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  view_.OnStudy(study_, start_);
  ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "hbmtune: study 7: waits: job train holds host\n");
}

TEST_F(ProgressTest, ATrialThatRanOutOfMemorySaysHow) {
  v1::Trial trial;
  trial.set_name("studies/7/trials/3");
  trial.mutable_measurement()->set_outcome(v1::OUTCOME_OUT_OF_MEMORY);
  trial.mutable_measurement()->set_message("asked for 64.00 MiB, 12.00 MiB were free");
  trial.mutable_train_config()->set_micro_batch(8);
  EXPECT_EQ(TrialLine(trial, study_.workload()),
            "trial 3  OUT_OF_MEMORY  micro-batch 8 × accumulation 1, no checkpointing, fp32: "
            "asked for 64.00 MiB, 12.00 MiB were free");
}

TEST_F(ProgressTest, ATrialThatFittedSaysItsFigures) {
  v1::Trial trial;
  trial.set_name("studies/7/trials/4");
  trial.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
  trial.mutable_measurement()->set_tokens_per_second(987.6);
  trial.mutable_measurement()->set_peak_used_bytes(int64_t{1} << 29);
  EXPECT_EQ(TrialLine(trial, study_.workload()),
            "trial 4  OK  988 tok/s  peak 512.00 MiB  micro-batch 1 × accumulation 1, no "
            "checkpointing, fp32");
}

}  // namespace
}  // namespace hbmtune::client
