#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/model_file.h"
#include "client/output_json.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "client/terminal.h"
#include "client/verbs.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

struct RecommendFlags {
  std::string study;
  WorkloadFlags workload;
  ConnectionFlags connection;
  OutputFlag output;
};

absl::StatusOr<v1::RecommendRequest> MakeRequest(const RecommendFlags& flags) {
  v1::RecommendRequest request;
  if (!flags.study.empty()) {
    if (flags.workload.Any() || !flags.workload.device.empty()) {
      return absl::InvalidArgumentError("give either a STUDY or a workload, not both");
    }
    request.set_study(flags.study);
    return request;
  }
  auto model = ReadModel(flags.workload.model);
  if (!model.ok()) return model.status();
  *request.mutable_model() = *std::move(model);
  auto workload = flags.workload.Apply(Workload{});
  if (!workload.ok()) return workload.status();
  ToProto(*workload, *request.mutable_workload());
  request.mutable_workload()->clear_model();
  request.set_device(flags.workload.device.empty() ? "host" : flags.workload.device);
  return request;
}

absl::StatusOr<ExitCode> RunRecommend(const RecommendFlags& flags) {
  auto request = MakeRequest(flags);
  if (!request.ok()) return request.status();
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  auto answer = Call((*connection)->tuning(), &v1::Tuning::StubInterface::Recommend, *request);
  if (!answer.ok()) return answer.status();
  RecommendationOutput recommendation = ToOutput(*answer);
  if (flags.output.json()) {
    PrintJson(ToJson(recommendation));
  } else {
    Terminal terminal(stdout);
    PrintRecommendation(terminal, recommendation);
  }
  return recommendation.train_config ? kDone : kNothingFits;
}

}  // namespace

void AddRecommend(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "recommend", "the best that is known, of a study or for a workload, at once");
  verb->footer(
      "examples\n"
      "  hbmtune recommend 7\n"
      "  hbmtune recommend --model llama2-13b --device model:mi210 --output json");
  auto flags = std::make_shared<RecommendFlags>();
  verb->add_option("STUDY", flags->study, "number of a study; without it, the workload's flags")
      ->type_name("STUDY")
      ->group("arguments");
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  flags->workload.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunRecommend(*flags); }; });
}

}  // namespace hbmtune::client
