#include "daemon/http/status_page.h"

#include <absl/strings/str_join.h>

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
          {"expected_trials", record.spec.max_trials},
          {"finished_trials", record.progress.finished_trials},
          {"out_of_memory_trials", record.progress.out_of_memory_trials},
          {"best_tokens_per_second", record.progress.best_tokens_per_second},
          {"ceiling_bytes", record.spec.ceiling.device_bytes},
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
