#include <memory>

#include "client/connection.h"
#include "client/describe.h"
#include "client/ladder_output.h"
#include "client/model_file.h"
#include "client/report_effects.h"
#include "client/request_flags.h"
#include "client/table.h"
#include "client/text.h"
#include "client/verbs.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune ladder --local\n"
    "  hbmtune ladder --device model:mi300x --model llama2-7b --micro-batch 12\n"
    "\n"
    "What practitioners do one after the other, full fine-tuning with Transformers:\n"
    "  none              fp32 everywhere, nothing recomputed\n"
    "  + checkpointing   every layer recomputed\n"
    "  + mixed precision bf16 autocast, fp32 weights and moments\n"
    "  + everything      DeepSpeed: bf16 weights, ZeRO 2, optimizer on the CPU";

struct LadderFlags {
  std::vector<std::string> models;
  std::string device = "model:mi210";
  int64_t seq_len = 2048;
  int64_t micro_batch = 0;
  int64_t world_size = 1;
  CeilingFlags ceiling;
  ConnectionFlags connection;
  OutputFlag output;
};

// The practitioners' batches (Llama 2 and Falcon on an MI210); 1 for any other model.
int64_t UsualBatch(const std::string& model) {
  if (model == "llama2-7b") return 4;
  if (model == "llama2-13b") return 2;
  return model == "falcon-7b" ? 3 : 1;
}

struct Rung {
  const char* name;
  const char* adds;
  bool deepspeed;
  const char* precision;
  GivenFields fields;
};

std::vector<Rung> Rungs(int64_t world_size) {
  const GivenFields recompute = {{"checkpoint.every", 1}};
  GivenFields everything = recompute;
  everything.insert({{"zero.stage", 2},
                     {"zero.reduce_bucket_size", 200'000'000},
                     {"offload.optimizer", "cpu_adam"}});
  if (world_size > 1) everything["zero.allgather_bucket_size"] = 200'000'000;
  return {{"none", "fp32, nothing recomputed", false, "fp32", {}},
          {"checkpointing", "every layer recomputed", false, "fp32", recompute},
          {"mixed precision", "bf16 autocast over fp32 weights", false, "bf16-amp", recompute},
          {"everything", "DeepSpeed: bf16 weights, ZeRO 2, optimizer on the CPU", true,
           "bf16-amp", everything}};
}

Framework FrameworkOf(const Rung& rung, int64_t world_size) {
  if (rung.deepspeed) return Framework::kHfSdpaDeepspeed;
  return world_size > 1 ? Framework::kHfSdpaDdp : Framework::kHfSdpa;
}

absl::StatusOr<v1::EstimateRequest> MakeRequest(const LadderFlags& flags, const Rung& rung,
                                                const ModelLadderOutput& ladder) {
  v1::EstimateRequest request;
  request.mutable_model()->set_preset(ladder.model);
  request.set_device(flags.device);
  absl::Status status = flags.ceiling.Apply(*request.mutable_ceiling());
  if (!status.ok()) return status;
  Workload workload;
  workload.seq_len = flags.seq_len;
  workload.world_size = flags.world_size;
  workload.framework = FrameworkOf(rung, flags.world_size);
  ToProto(workload, *request.mutable_workload());
  request.mutable_workload()->clear_model();
  TrainConfigFlags config_flags{rung.precision, rung.fields};
  config_flags.given["micro_batch"] = ladder.micro_batch;
  const GivenFields fields = config_flags.Fields(workload.framework);
  TrainConfig config;
  status = ApplyFields(fields, config);
  if (!status.ok()) return status;
  ToSparseProto(config, fields, *request.mutable_train_config());
  return request;
}

absl::StatusOr<ModelLadderOutput> Climb(const Connection& connection, const LadderFlags& flags,
                                        const std::string& model) {
  ModelLadderOutput ladder;
  ladder.model = model;
  ladder.micro_batch = flags.micro_batch > 0 ? flags.micro_batch : UsualBatch(model);
  for (const Rung& rung : Rungs(flags.world_size)) {
    auto request = MakeRequest(flags, rung, ladder);
    if (!request.ok()) return request.status();
    auto answer = Call(connection.tuning(), &v1::Tuning::StubInterface::Estimate, *request);
    if (!answer.ok()) return answer.status();
    RungOutput output{rung.name, rung.adds, FrameworkOf(rung, flags.world_size),
                      FromProto<TrainConfig>(answer->train_config()),
                      FromProto<Estimate>(answer->estimate()), 0, 0, 0};
    const Estimate& now = output.estimate;
    output.missing_bytes = std::max<int64_t>(0, now.peak_used_bytes - now.ceiling_bytes);
    if (!ladder.rungs.empty()) {
      const Estimate& before = ladder.rungs.back().estimate;
      output.saved_bytes = before.peak_used_bytes - now.peak_used_bytes;
      output.cost_ratio = before.tokens_per_second / now.tokens_per_second - 1;
    }
    ladder.rungs.push_back(std::move(output));
  }
  return ladder;
}

void PrintModel(Terminal& terminal, const ModelLadderOutput& ladder) {
  Table table({{ladder.model + ", micro-batch " + std::to_string(ladder.micro_batch)},
               {"peak", Align::kRight}, {"saves", Align::kRight}, {"time", Align::kRight},
               {"fits"}});
  for (size_t i = 0; i < ladder.rungs.size(); ++i) {
    const RungOutput& rung = ladder.rungs[i];
    std::string verdict = "yes";
    if (!rung.estimate.fits) {
      verdict = rung.missing_bytes > 0 ? "no: " + FormatBytes(rung.missing_bytes) + " over"
                                       : "no: host memory";
    }
    std::string saves = i == 0 ? "" : FormatBytes(std::abs(rung.saved_bytes));
    if (rung.saved_bytes < 0) saves = "−" + saves;
    table.Add({(i == 0 ? "  " : "  + ") + rung.rung, FormatBytes(rung.estimate.peak_used_bytes),
               saves, i == 0 ? "" : SignedPercent(rung.cost_ratio), verdict});
  }
  terminal.Print("");
  bool title = true;
  for (const std::string& line : table.Lines()) {
    title ? terminal.Print(Terminal::Style::kBold, line) : terminal.Print(line);
    title = false;
  }
}

void Print(const LadderOutput& output) {
  Terminal terminal(stdout);
  terminal.Print("full fine-tune · " + std::string(Name(output.optimizer)) + " · seq " +
                 std::to_string(output.seq_len) + " · " + std::to_string(output.world_size) +
                 (output.world_size == 1 ? " rank" : " ranks") + " · hf-sdpa");
  terminal.Print("on " + output.device + ", of which " + FormatBytes(output.ceiling_bytes) +
                 " may be used");
  for (const ModelLadderOutput& ladder : output.models) PrintModel(terminal, ladder);
  const Estimate& last = output.models.front().rungs.back().estimate;
  terminal.Print("");
  terminal.Print("evidence " + DescribeEvidence(last.evidence, last.interval) +
                 "; what each rung adds: hbmtune ladder --help");
}

absl::StatusOr<ExitCode> RunLadder(const LadderFlags& flags) {
  for (const std::string& model : flags.models) {
    auto source = ReadModel(model);
    if (source.ok() && source->source_case() == v1::ModelSource::kPreset) continue;
    const bool path = model.find('/') != std::string::npos || model.ends_with(".json");
    if (!source.ok() && !path) return source.status();
    return absl::InvalidArgumentError("--model: '" + model + "' is a path: a ladder is of presets; "
                                      "hbmtune estimate takes a config.json");
  }
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  LadderOutput output;
  output.device = flags.device;
  output.seq_len = flags.seq_len;
  output.world_size = flags.world_size;
  std::vector<std::string> models = flags.models;
  if (models.empty()) models = {"llama2-7b", "llama2-13b", "falcon-7b"};
  for (const std::string& model : models) {
    auto ladder = Climb(**connection, flags, model);
    if (!ladder.ok()) return ladder.status();
    output.models.push_back(*std::move(ladder));
  }
  output.ceiling_bytes = output.models.front().rungs.front().estimate.ceiling_bytes;
  if (flags.output.json()) {
    PrintJson(ToJson(output));
  } else {
    Print(output);
  }
  return kDone;
}

}  // namespace

void AddLadder(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "ladder", "what checkpointing, mixed precision and offload save and cost, step by step");
  verb->footer(kFooter);
  auto flags = std::make_shared<LadderFlags>();
  const std::string group = "what is trained";
  verb->add_option("--model", flags->models,
                   "a preset (see hbmtune tune --help); may be repeated [llama2-7b, llama2-13b, "
                   "falcon-7b]")
      ->type_name("MODEL")
      ->allow_extra_args(false)
      ->take_all()
      ->group(group);
  AddNumber(*verb, "--seq-len", "tokens in a sequence [2048]", flags->seq_len, 1)
      ->group(group);
  AddNumber(*verb, "--micro-batch",
            "sequences in one forward pass of one rank [what the practitioners used: 4, 2 and 3; "
            "1 for other models]",
            flags->micro_batch, 1, int64_t{1} << 20)
      ->group(group);
  AddNumber(*verb, "--world-size", "ranks (GPUs) that train together [1]", flags->world_size, 1)
      ->group(group);
  AddDevice(*verb, "see hbmtune devices [model:mi210]", flags->device)->group("on what");
  flags->ceiling.AddTo(*verb);
  flags->output.AddTo(*verb);
  flags->connection.AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunLadder(*flags); }; });
}

}  // namespace hbmtune::client
