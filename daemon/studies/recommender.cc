#include "daemon/studies/recommender.h"

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "daemon/base/errors.h"
#include "daemon/studies/plan.h"
#include "tuner/predict/predict.h"

namespace hbmtune::daemon {

namespace {

// Hints beyond this are left out: the caller waits.
constexpr absl::Duration kHintTime = absl::Seconds(5);

// AMD's modelled GPUs that may use more than this study's device, least memory first. Other makers'
// profiles are there to compare with published runs.
std::vector<tuner::LargerDevice> LargerDevices(const StudyPlan& plan, const Catalogue& catalogue) {
  if (plan.device.kind == DeviceKind::kHost) return {};
  const Ceiling ceiling{.host_bytes = plan.ceiling.host_bytes};
  std::vector<std::pair<int64_t, tuner::LargerDevice>> by_memory;
  for (const DeviceInfo& device : catalogue.List()) {
    const int64_t bytes = CeilingBytes(ceiling, device.profile);
    if (device.kind != DeviceKind::kModel || !device.profile.architecture.starts_with("gfx") ||
        bytes <= CeilingBytes(plan.ceiling, plan.device.profile)) {
      continue;
    }
    by_memory.push_back({bytes, {device.name, [ceiling, profile = device.profile](
                                                  const Workload& workload,
                                                  const TrainConfig& config) {
                           return Predict(workload, config, profile, ceiling);
                         }}});
  }
  std::stable_sort(by_memory.begin(), by_memory.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<tuner::LargerDevice> larger;
  for (auto& [bytes, device] : by_memory) larger.push_back(std::move(device));
  return larger;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Advice>> Recommender::ForStudy(const StudyRecord& study) {
  {
    absl::MutexLock lock(&mutex_);
    auto kept = kept_.find(study.id);
    if (kept != kept_.end() && kept->second.ended == study.ended() &&
        kept->second.finished_trials == study.progress.finished_trials) {
      return kept->second.advice;
    }
  }
  auto advice = Work(study);
  if (!advice.ok()) return advice.status();
  auto shared = std::make_shared<const Advice>(*std::move(advice));
  absl::MutexLock lock(&mutex_);
  kept_[study.id] = {study.progress.finished_trials, study.ended(), shared};
  if (kept_.size() > kMostKept) kept_.erase(kept_.begin());
  return shared;
}

absl::StatusOr<Advice> Recommender::Work(const StudyRecord& study) {
  auto plan = MakePlan(study.spec, catalogue_);
  if (!plan.ok()) return plan.status();
  auto trials = store_.ListTrials(study.id, 0, std::numeric_limits<int64_t>::max());
  if (!trials.ok()) return trials.status();
  Advice advice;
  advice.study = study;
  advice.ceiling = plan->ceiling;
  advice.ceiling.device_bytes = CeilingBytes(plan->ceiling, plan->device.profile);
  if (advice.ceiling.capacity_bytes == 0) {
    advice.ceiling.capacity_bytes = static_cast<int64_t>(plan->device.profile.capacity_bytes.value);
  }
  auto recommendation = tuner::Choose(plan->space, HistoryOf(*trials));
  if (recommendation.ok()) {
    advice.recommendation = *std::move(recommendation);
    return advice;
  }
  if (!absl::IsNotFound(recommendation.status())) return recommendation.status();
  if (!study.ended()) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          StudyName(study.id), " has no finished trial that fits yet")),
                      "NO_TRIALS");
  }
  // Cut short before anything was tried, it says nothing of what fits.
  if (study.state != StudyState::kSucceeded && study.progress.finished_trials == 0) {
    const char* how = study.state == StudyState::kFailed ? " failed" : " was cancelled";
    return WithReason(absl::FailedPreconditionError(absl::StrCat(StudyName(study.id), how,
                                                                 " before a trial ended")),
                      "NO_TRIALS");
  }
  const absl::Time until = absl::Now() + kHintTime;
  auto shortfall = tuner::ExplainShortfall(
      plan->space, plan->facts(),
      [&](const Workload& workload, const TrainConfig& config) {
        return Predict(workload, config, plan->device.profile, plan->ceiling);
      },
      LargerDevices(*plan, catalogue_), [until] { return absl::Now() >= until; });
  if (!shortfall.ok()) return shortfall.status();
  advice.shortfall = *std::move(shortfall);
  return advice;
}

absl::StatusOr<std::shared_ptr<const Advice>> Recommender::ForWorkload(
    const Workload& workload, const std::string& device) {
  auto ids = store_.StudiesOf(workload, device);
  if (!ids.ok()) return ids.status();
  std::shared_ptr<const Advice> best;
  for (int64_t id : *ids) {
    auto study = store_.GetStudy(id);
    if (!study.ok()) return study.status();
    auto advice = ForStudy(*study);
    if (!advice.ok() || !(*advice)->recommendation) continue;
    if (best == nullptr || (*advice)->recommendation->best.evidence >
                               best->recommendation->best.evidence) {
      best = *advice;
    }
  }
  if (best != nullptr) return best;
  return WithReason(
      absl::NotFoundError(absl::StrCat("no study of ", workload.model.name, " on ", device,
                                       " has a trial that fits; `hbmtune tune` makes one")),
      "NO_STUDY");
}

}  // namespace hbmtune::daemon
