#include <memory>

#include "client/conclude.h"
#include "client/connection.h"
#include "client/model_file.h"
#include "client/output_json.h"
#include "client/report.h"
#include "client/report_effects.h"
#include "client/request_flags.h"
#include "client/terminal.h"
#include "client/timeline_file.h"
#include "client/trials.h"
#include "client/verbs.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune estimate --local --model llama2-7b --device model:mi210 \\\n"
    "      --precision bf16-amp --micro-batch 4 --checkpoint.every 1\n"
    "  hbmtune estimate --from 7 --micro-batch 8\n"
    "  hbmtune estimate --from 7/3 --output json\n"
    "  hbmtune estimate --from 7 --timeline step.html --explain\n"
    "\n"
    "Exit code 0 means answered; whether it fits is in the answer. A config of over\n"
    "256 TiB has no answer: it is refused (2).";

struct EstimateFlags {
  std::string from;
  std::string timeline;
  bool explain = false;
  WorkloadFlags workload;
  CeilingFlags ceiling;
  TrainConfigFlags config;
  ConnectionFlags connection;
  OutputFlag output;
};

// Where an estimate starts from: defaults, or what a study trained and found.
struct Base {
  Workload workload;
  TrainConfig config;
  v1::Ceiling ceiling;
  std::string device = "host";
  bool from_study = false;
};

absl::StatusOr<TrainConfig> ConfigOf(const Connection& connection, const std::string& study,
                                     const std::string& trial) {
  if (!trial.empty()) {
    auto found = FindTrial(connection, study, trial);
    if (!found.ok()) return found.status();
    return FromProto<TrainConfig>(found->train_config());
  }
  auto recommendation = RecommendFor(connection, study);
  if (!recommendation.ok()) return recommendation.status();
  if (recommendation->has_best()) {
    return FromProto<TrainConfig>(recommendation->best().train_config());
  }
  return FromProto<TrainConfig>(recommendation->shortfall().train_config());
}

// `from` is "7", "7/3" or the whole name "studies/7/trials/3".
absl::StatusOr<Base> ReadBase(const Connection& connection, std::string from) {
  for (const char* word : {"studies/", "trials/"}) {
    if (size_t at = from.find(word); at != std::string::npos) {
      from.erase(at, std::string_view(word).size());
    }
  }
  size_t slash = from.find('/');
  std::string trial = slash == std::string::npos ? "" : from.substr(slash + 1);
  v1::GetStudyRequest request;
  request.set_name(from.substr(0, slash));
  auto study = Call(connection.tuning(), &v1::Tuning::StubInterface::GetStudy, request);
  if (!study.ok()) return study.status();
  auto config = ConfigOf(connection, study->name(), trial);
  if (!config.ok()) return config.status();
  return Base{FromProto<Workload>(study->workload()), *config, study->ceiling(), study->device(),
              true};
}

// Fills the workload; the model is the one that --model names, or else the base's.
absl::StatusOr<Workload> FillWorkload(const EstimateFlags& flags, const Base& base,
                                      v1::EstimateRequest& request) {
  bool new_model = !flags.workload.model.empty() || !base.from_study;
  if (new_model) {
    auto model = ReadModel(flags.workload.model);
    if (!model.ok()) return model.status();
    *request.mutable_model() = *std::move(model);
  }
  auto workload = flags.workload.Apply(base.workload);
  if (!workload.ok()) return workload.status();
  ToProto(*workload, *request.mutable_workload());
  if (new_model) request.mutable_workload()->clear_model();
  return workload;
}

absl::StatusOr<v1::EstimateRequest> MakeRequest(const EstimateFlags& flags, const Base& base) {
  v1::EstimateRequest request;
  auto workload = FillWorkload(flags, base, request);
  if (!workload.ok()) return workload.status();
  const std::string& device = flags.workload.device;
  request.set_device(device.empty() ? base.device : device);
  request.set_explain(flags.explain);
  if (!flags.timeline.empty()) request.set_timeline_points(TimelinePoints(flags.timeline));
  // The memory of the study's device says nothing about another device.
  if (device.empty()) *request.mutable_ceiling() = base.ceiling;
  absl::Status status = flags.ceiling.Apply(*request.mutable_ceiling());
  if (!status.ok()) return status;
  GivenFields fields = flags.config.Fields(workload->framework);
  TrainConfig config = base.config;
  status = ApplyFields(fields, config);
  if (!status.ok()) return status;
  v1::TrainConfig& message = *request.mutable_train_config();
  if (!base.from_study) {
    ToSparseProto(config, fields, message);
    return request;
  }
  ToProto(config, message);
  // Unset, it follows from the global batch.
  if (workload->global_batch > 0 && !fields.contains("grad_accum")) message.clear_grad_accum();
  return request;
}

EstimateOutput ReadAnswer(const v1::EstimateResponse& answer, const EstimateFlags& flags,
                          const v1::EstimateRequest& request) {
  EstimateOutput output{FromProto<Estimate>(answer.estimate()),
                        request.device(),
                        FromProto<Workload>(answer.workload()),
                        FromProto<TrainConfig>(answer.train_config()),
                        std::nullopt,
                        request.ceiling().host_bytes()};
  if (!flags.explain) return output;
  output.effects.emplace();
  for (const v1::Effect& effect : answer.effects()) {
    output.effects->push_back(FromProto<Effect>(effect));
  }
  return output;
}

absl::StatusOr<ExitCode> Show(const v1::EstimateResponse& answer, const EstimateFlags& flags,
                              const v1::EstimateRequest& request) {
  const EstimateOutput output = ReadAnswer(answer, flags, request);
  if (!flags.timeline.empty()) {
    const TimelineOutput drawn{output, FromProto<StepTimeline>(answer.timeline())};
    if (absl::Status status = WriteTimeline(flags.timeline, drawn); !status.ok()) return status;
  }
  if (flags.output.json()) {
    PrintJson(ToJson(output));
    return kDone;
  }
  Terminal terminal(stdout);
  PrintEstimate(terminal, output);
  if (output.effects) PrintEffects(terminal, *output.effects, output.estimate.fits);
  return kDone;
}

absl::StatusOr<ExitCode> RunEstimate(const EstimateFlags& flags) {
  absl::StatusOr<v1::EstimateRequest> request;
  // What is wrong on the command line is said before a daemon is looked for.
  if (!flags.timeline.empty()) {
    if (absl::Status status = CheckTimelinePath(flags.timeline); !status.ok()) return status;
  }
  if (flags.from.empty()) {
    request = MakeRequest(flags, Base{});
    if (!request.ok()) return request.status();
  }
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  if (!flags.from.empty()) {
    auto base = ReadBase(**connection, flags.from);
    if (!base.ok()) return base.status();
    request = MakeRequest(flags, *base);
    if (!request.ok()) return request.status();
  }
  auto answer = Call((*connection)->tuning(), &v1::Tuning::StubInterface::Estimate, *request);
  if (!answer.ok()) return answer.status();
  return Show(*answer, flags, *request);
}

}  // namespace

void AddEstimate(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "estimate", "memory by owner, step time and whether it fits, of one train config");
  verb->footer(kFooter);
  auto flags = std::make_shared<EstimateFlags>();
  verb->add_option("--from", flags->from,
                   "start from a study's recommended config, or from that of one trial")
      ->type_name("STUDY[/TRIAL]")
      ->group("what is trained");
  flags->workload.AddTo(*verb);
  flags->ceiling.AddTo(*verb);
  flags->output.AddTo(*verb);
  verb->add_option("--timeline", flags->timeline,
                   "draw memory over the step, by owner: .svg, .html (reads out under the "
                   "pointer) or .json (the series)")
      ->type_name("PATH")
      ->check([](const std::string& path) {
        return std::string(path.empty() ? "the path is empty" : "");
      })
      ->group("output");
  verb->add_flag("--explain", flags->explain,
                 "say what each tunable would do, changed alone: memory saved, time paid")
      ->group("output");
  flags->connection.AddTo(*verb);
  flags->config.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunEstimate(*flags); }; });
}

}  // namespace hbmtune::client
