#include "client/progress.h"

#include <algorithm>

#include "client/describe.h"
#include "client/output.h"
#include "client/screen.h"
#include "client/text.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr size_t kBarColumns = 12;

double SecondsSince(ProgressView::Clock::time_point then, ProgressView::Clock::time_point now) {
  return std::max(0.0, std::chrono::duration<double>(now - then).count());
}

// What it waits for; empty while it does not.
std::string WaitOf(const v1::Study& study) {
  const bool queued = study.state() == v1::STUDY_STATE_QUEUED;
  if (!queued) return study.state() == v1::STUDY_STATE_RUNNING ? study.message() : "";
  return study.message().empty() ? "waiting" : "waiting: " + study.message();
}

}  // namespace

std::string Trials(const v1::Progress& progress) {
  std::string text = std::to_string(progress.finished_trials());
  if (progress.expected_trials() > 0) text += "/" + std::to_string(progress.expected_trials());
  return text + (text == "1" ? " trial" : " trials");
}

void WaitNote::OnStudy(const v1::Study& study) {
  const bool queued = study.state() == v1::STUDY_STATE_QUEUED;
  // A study that was just made is queued for an instant: nothing to tell yet.
  if (HasEnded(study) || (queued && study.message().empty())) return;
  std::string wait = WaitOf(study);
  if (wait == told_) return;
  WriteOut(stderr, "hbmtune: study " + NumberOf(study.name()) + ": " +
                       (wait.empty() ? "goes on" : Harmless(wait)) + "\n");
  told_ = std::move(wait);
}

std::string NumberOf(const std::string& name) { return name.substr(name.rfind('/') + 1); }

bool HasEnded(const v1::Study& study) {
  return study.state() == v1::STUDY_STATE_SUCCEEDED ||
         study.state() == v1::STUDY_STATE_CANCELLED || study.state() == v1::STUDY_STATE_FAILED;
}

std::string TrialLine(const v1::Trial& trial, const v1::Workload& workload) {
  auto framework = FromProto<Workload>(workload).framework;
  std::string config =
      DescribeConfigShort(FromProto<TrainConfig>(trial.train_config()), framework);
  std::string line = "trial " + NumberOf(trial.name()) + "  ";
  Figures figures;
  bool fits = true;
  std::string outcome = "predicted";
  std::string message;
  if (trial.has_measurement()) {
    auto measurement = FromProto<Measurement>(trial.measurement());
    figures = FiguresOf(measurement);
    fits = measurement.outcome == Outcome::kOk;
    outcome = Name(measurement.outcome);
    message = measurement.message;
  } else {
    auto estimate = FromProto<Estimate>(trial.estimate());
    figures = FiguresOf(estimate);
    fits = estimate.fits;
    if (!fits) outcome = "does not fit";
  }
  line += outcome + "  ";
  if (fits) line += FormatNumber(figures.tokens_per_second) + " tok/s  ";
  if (figures.peak_bytes > 0) line += "peak " + FormatBytes(figures.peak_bytes) + "  ";
  line += config;
  return fits || message.empty() ? line : line + ": " + message;
}

void ProgressView::OnStudy(const v1::Study& study, Clock::time_point now) {
  study_ = study;
  study_time_ = now;
  if (!terminal_.interactive()) wait_note_.OnStudy(study);
  bool tell = !space_told_ && study.space().legal() > 0;
  if (tell && (terminal_.interactive() || plain_ == Plain::kLines)) {
    terminal_.Print("space    " +
                    DescribeSpace(study.space().legal(), study.space().settings()));
    space_told_ = true;
  }
  Tick(now);
}

void ProgressView::OnTrialFinished(const v1::Trial& trial) {
  step_ = -1;
  if (terminal_.interactive() || plain_ == Plain::kNothing) return;
  terminal_.Print(TrialLine(trial, study_.workload()));
}

void ProgressView::OnTrialProgress(const v1::TrialProgress& progress, Clock::time_point now) {
  step_ = progress.step();
  Tick(now);
}

void ProgressView::Tick(Clock::time_point now) { terminal_.Live(Line(now)); }

void ProgressView::Finish() {
  if (!terminal_.interactive() && plain_ == Plain::kNothing) return;
  notice_.clear();
  terminal_.Print(Line(study_time_));
}

double ProgressView::DoneRatio(double elapsed_seconds) const {
  const v1::Progress& progress = study_.progress();
  if (study_.state() == v1::STUDY_STATE_SUCCEEDED) return 1;
  double done = 0;
  if (progress.expected_trials() > 0) {
    done = static_cast<double>(progress.finished_trials()) /
           static_cast<double>(progress.expected_trials());
  }
  if (study_.budget_seconds() > 0) {
    done = std::max(done, elapsed_seconds / study_.budget_seconds());
  }
  return std::clamp(done, 0.0, 1.0);
}

std::string ProgressView::Bar(double done_ratio) const {
  auto full = static_cast<size_t>(done_ratio * kBarColumns);
  std::string bar = " ▕";
  for (size_t i = 0; i < kBarColumns; ++i) bar += i < full ? "█" : " ";
  return bar + "▏ ";
}

std::string ProgressView::Line(Clock::time_point now) const {
  const v1::Progress& progress = study_.progress();
  bool running = study_.state() == v1::STUDY_STATE_RUNNING;
  double since = running ? SecondsSince(study_time_, now) : 0;
  double elapsed = progress.elapsed_seconds() + since;
  std::string line = Bar(DoneRatio(elapsed)) + Trials(progress);
  // Before a trial has ended nothing is known of what fits, unless the study says so by its end.
  const bool known =
      progress.finished_trials() > 0 || study_.state() == v1::STUDY_STATE_SUCCEEDED;
  if (progress.best_tokens_per_second() > 0) {
    line += " · best " + FormatNumber(progress.best_tokens_per_second()) + " tok/s";
  } else if (known) {
    line += HasEnded(study_) ? " · nothing fits" : " · nothing fits yet";
  }
  bool limited = running && progress.remaining_seconds() > 0;
  const bool began = running || elapsed > 0 || HasEnded(study_);
  if (limited) {
    line += " · " + FormatDuration(std::max(0.0, progress.remaining_seconds() - since)) + " left";
  } else if (began) {
    line += " · " + FormatDuration(elapsed);
  }
  if (!notice_.empty()) return line + " · " + notice_;
  if (study_.state() == v1::STUDY_STATE_CANCELLED) return line + " · cancelled";
  if (study_.state() == v1::STUDY_STATE_FAILED) return line + " · failed";
  if (HasEnded(study_)) return line;
  if (const std::string wait = WaitOf(study_); !wait.empty()) return line + " · " + wait;
  if (!progress.trying().empty()) line += " · " + progress.trying();
  if (step_ >= 0) line += ", step " + std::to_string(step_ + 1);
  return line;
}

}  // namespace hbmtune::client
