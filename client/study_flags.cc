#include "client/study_flags.h"

#include <fstream>

#include "client/model_file.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr double kUsualBudgetSeconds = 300;
constexpr int64_t kMostSeed = int64_t{1} << 53;

std::string RandomUuid() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string uuid;
  std::getline(file, uuid);
  return uuid;
}

}  // namespace

void StudyFlags::AddSearchTo(CLI::App& app, const std::string& budget_help) {
  app.add_option("--budget", budget, budget_help)->type_name("TIME")->group(kSearchGroup);
  AddNumber(app, "--max-trials", "most trials, 0 for no limit [0]", max_trials, 0)
      ->group(kSearchGroup);
  AddChoice(app, "--designer", {"bracket", "grid", "random"}, "how trials are chosen [bracket]",
            designer)
      ->group(kSearchGroup);
  AddNumber(app, "--seed", "decides every random choice [0]", seed, -kMostSeed)
      ->group(kSearchGroup);
}

absl::StatusOr<v1::CreateStudyRequest> StudyFlags::Request(const std::string& device) const {
  v1::CreateStudyRequest request;
  request.set_client_request_id(RandomUuid());
  auto model = ReadModel(workload.model);
  if (!model.ok()) return model.status();
  *request.mutable_model() = *std::move(model);
  auto trained = workload.Apply(Workload{});
  if (!trained.ok()) return trained.status();
  ToProto(*trained, *request.mutable_workload());
  request.mutable_workload()->clear_model();
  request.set_device(device);
  absl::Status status = ceiling.Apply(*request.mutable_ceiling());
  if (!status.ok()) return status;
  if (!device.starts_with("model:")) request.set_budget_seconds(kUsualBudgetSeconds);
  if (!budget.empty()) {
    auto seconds = ParseBudget(budget);
    if (!seconds.ok()) return seconds.status();
    request.set_budget_seconds(*seconds);
  }
  request.set_max_trials(max_trials);
  request.set_designer(designer);
  request.set_seed(seed);
  auto pins = pinned.Pins(trained->framework);
  if (!pins.ok()) return pins.status();
  request.mutable_pins()->insert(pins->begin(), pins->end());
  return request;
}

}  // namespace hbmtune::client
