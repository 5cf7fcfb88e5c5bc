#include "daemon/services/tuning_service.h"

#include <absl/strings/str_cat.h>

#include <array>
#include <utility>

#include "daemon/base/errors.h"
#include "daemon/services/requests.h"
#include "proto/convert.h"
#include "tuner/export/export.h"

namespace hbmtune::daemon {
namespace {

// What is exported, and for what.
struct Exported {
  Workload workload;
  TrainConfig config;
};

absl::StatusOr<ExportFormat> ParseFormat(v1::ExportFormat format) {
  if (format == v1::EXPORT_FORMAT_UNSPECIFIED) {
    return FieldError("format", "no format: " + ListOf<ExportFormat>());
  }
  return static_cast<ExportFormat>(static_cast<int>(format) - 1);
}

// Names under which the tools look for these files by default, or that their guides use.
std::string FileName(ExportFormat format) {
  constexpr std::array<const char*, 6> kNames = {"ds_config.json",  "training_args.json",
                                                 "accelerate.yaml", "hbmtune.env",
                                                 "model_args.json", "train_config.json"};
  return kNames[static_cast<size_t>(format)];
}

absl::StatusOr<Exported> OfTrial(const std::string& name, StudyStore& store) {
  auto parsed = ParseTrialName(name);
  if (!parsed) {
    return FieldError("trial",
                      absl::StrCat("'", name, "' names no trial: studies/7/trials/3 does"));
  }
  auto study = store.GetStudy(parsed->first);
  if (!study.ok()) return study.status();
  auto trial = store.GetTrial(parsed->first, parsed->second);
  if (!trial.ok()) return trial.status();
  return Exported{study->spec.workload, trial->config};
}

absl::StatusOr<Exported> OfAdvice(const Advice& advice) {
  if (!advice.recommendation) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          StudyName(advice.study.id), " has nothing to export: no config fits")),
                      "NOTHING_FITS");
  }
  return Exported{advice.study.spec.workload, advice.recommendation->best.train_config};
}

absl::StatusOr<Exported> OfRequest(const v1::ExportRequest& request) {
  auto workload = ParseWorkload(request.workload(), request.model());
  if (!workload.ok()) return workload.status();
  auto config = ParseTrainConfig(request.train_config(), *workload, false);
  if (!config.ok()) return config.status();
  return Exported{*std::move(workload), *std::move(config)};
}

}  // namespace

absl::Status TuningService::DoExport(const v1::ExportRequest& request,
                                     v1::ExportResponse& response) {
  if (absl::Status status = CheckEnums(request); !status.ok()) return status;
  auto format = ParseFormat(request.format());
  if (!format.ok()) return format.status();
  absl::StatusOr<Exported> exported = FieldError("what", "nothing to export: name a study");
  if (request.what_case() == v1::ExportRequest::kStudy) {
    auto advice = AdviceFor(request.study());
    if (!advice.ok()) return advice.status();
    exported = OfAdvice(**advice);
  } else if (request.what_case() == v1::ExportRequest::kTrial) {
    exported = OfTrial(request.trial(), parts_.store);
  } else if (request.what_case() == v1::ExportRequest::kTrainConfig) {
    exported = OfRequest(request);
  }
  if (!exported.ok()) return exported.status();
  auto text = tuner::Export(exported->workload, exported->config, *format);
  if (!text.ok()) return FieldError("format", text.status());
  response.set_text(*std::move(text));
  response.set_file_name(FileName(*format));
  for (auto needed : tuner::AlsoNeeded(exported->workload, exported->config, *format)) {
    response.add_also_needed(static_cast<v1::ExportFormat>(static_cast<int>(needed) + 1));
  }
  return absl::OkStatus();
}

}  // namespace hbmtune::daemon
