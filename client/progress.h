#pragma once

#include <chrono>
#include <string>

#include "client/terminal.h"
#include "hbmtune/v1/tuning.pb.h"

namespace hbmtune::client {

// Where there is no live line: one line on stderr when what a study waits for changes, and when it
// goes on.
class WaitNote {
 public:
  void OnStudy(const v1::Study& study);

 private:
  std::string told_;
};

// Where a study is: one live line on a terminal; elsewhere a plain line for each trial that ends.
// Not for several threads at once.
class ProgressView {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Plain { kLines, kNothing };  // what goes where there is no terminal

  // `terminal` must outlive this.
  ProgressView(Terminal& terminal, Plain plain) : terminal_(terminal), plain_(plain) {}

  void OnStudy(const v1::Study& study, Clock::time_point now);
  void OnTrialFinished(const v1::Trial& trial);
  void OnTrialProgress(const v1::TrialProgress& progress, Clock::time_point now);

  // Redraws what time alone changes.
  void Tick(Clock::time_point now);

  // Something out of the ordinary, shown in place of what is being tried: "cancelling …".
  void SetNotice(std::string notice) { notice_ = std::move(notice); }

  // The last state, as a line that stays.
  void Finish();

  // "▕████    ▏ 4/11 trials · best 1,234 tok/s · 12 s left · micro-batch 8".
  std::string Line(Clock::time_point now) const;

 private:
  std::string Bar(double done_ratio) const;
  double DoneRatio(double elapsed_seconds) const;

  Terminal& terminal_;
  Plain plain_;
  v1::Study study_;
  Clock::time_point study_time_;
  int64_t step_ = -1;  // of the running trial
  std::string notice_;
  WaitNote wait_note_;
  bool space_told_ = false;
};

// "4 trials", "4/11 trials": those that ended, of those that are expected.
std::string Trials(const v1::Progress& progress);

// "trial 4  OUT_OF_MEMORY  micro-batch 16 …: what happened" or its figures.
std::string TrialLine(const v1::Trial& trial, const v1::Workload& workload);

// "studies/7" → "7", "studies/7/trials/3" → "3".
std::string NumberOf(const std::string& name);

// Whether nothing more will happen to it.
bool HasEnded(const v1::Study& study);

}  // namespace hbmtune::client
