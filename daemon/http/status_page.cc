#include "daemon/http/status_page.h"

#include <absl/strings/str_join.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tuner/recommend/describe.h"
#include "tuner/search/history.h"

namespace hbmtune::daemon {
namespace {

using nlohmann::json;

json DeviceJson(const StatusView::Device& device) {
  json out = {{"name", device.info.name},
              {"state", device.state},
              {"product", device.info.product},
              {"memory_bytes", device.info.memory_bytes},
              {"now_seconds", device.now_seconds},
              {"history", device.history}};
  if (!device.dirty.empty()) out["dirty"] = device.dirty;
  if (device.info.used_bytes) out["used_bytes"] = *device.info.used_bytes;
  return out;
}

json TrialJson(const StudyRecord& study, const TrialRecord& trial) {
  const tuner::Trial tried{trial.config, trial.estimate, trial.measurement, true, trial.seconds};
  const auto words = tuner::Describe(study.spec.workload.framework, trial.config);
  return {{"config", absl::StrJoin(words, ", ")},
          {"fits", tuner::Fitted(tried)},
          {"peak_used_bytes", tuner::PeakUsedBytes(tried)},
          {"tokens_per_second", tuner::TokensPerSecond(tried)}};
}

// By trials or by time, whichever is further.
double DoneRatio(const StudyRecord& study) {
  double done = 0;
  if (study.spec.max_trials > 0) {
    done = double(study.progress.finished_trials) / double(study.spec.max_trials);
  }
  if (study.spec.budget_seconds > 0) {
    done = std::max(done, study.progress.elapsed_seconds / study.spec.budget_seconds);
  }
  return std::min(done, 1.0);
}

// What was asked for, or what the device leaves, as its estimates say.
int64_t CeilingBytes(const StatusView::Study& study) {
  int64_t bytes = study.record.spec.ceiling.device_bytes;
  for (const TrialRecord& trial : study.trials) {
    if (bytes == 0 && trial.estimate) bytes = trial.estimate->ceiling_bytes;
  }
  return bytes;
}

json StudyJson(const StatusView::Study& study) {
  const StudyRecord& record = study.record;
  json trials = json::array();
  for (const TrialRecord& trial : study.trials) {
    if (trial.state == TrialState::kFinished) trials.push_back(TrialJson(record, trial));
  }
  return {{"name", StudyName(record.id)},
          {"state", Name(record.state)},
          {"model", record.spec.workload.model.name},
          {"device", record.spec.device},
          {"done_ratio", DoneRatio(record)},
          {"finished_trials", record.progress.finished_trials},
          {"out_of_memory_trials", record.progress.out_of_memory_trials},
          {"best_tokens_per_second", record.progress.best_tokens_per_second},
          {"ceiling_bytes", CeilingBytes(study)},
          {"trying", record.trying},
          {"message", record.message},
          {"trials", trials}};
}

json FindingJson(const JobFinding& found) {
  return {{"kind", Name(found.finding.kind)},
          {"device", found.device},
          {"step", found.finding.step},
          {"message", found.finding.message},
          {"advice", found.finding.advice}};
}

}  // namespace

std::string StatusJson(const StatusView& view) {
  json out = {{"hostname", view.hostname},
              {"version", view.version},
              {"degraded", view.degraded},
              {"devices", json::array()},
              {"studies", json::array()},
              {"findings", json::array()}};
  for (const auto& device : view.devices) out["devices"].push_back(DeviceJson(device));
  for (const auto& study : view.studies) out["studies"].push_back(StudyJson(study));
  for (const auto& finding : view.findings) out["findings"].push_back(FindingJson(finding));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace hbmtune::daemon
