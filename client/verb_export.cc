#include <cstdio>
#include <memory>
#include <vector>

#include "client/connection.h"
#include "client/flags.h"
#include "client/output.h"
#include "client/output_json.h"
#include "client/text.h"
#include "client/trials.h"
#include "client/verbs.h"

namespace hbmtune::client {
namespace {

struct ExportFlags {
  std::string study;
  std::string format;
  std::string trial;
  ConnectionFlags connection;
};

struct Format {
  std::string name;
  v1::ExportFormat value;
};
const std::vector<Format> kFormats = {{"deepspeed", v1::EXPORT_FORMAT_DEEPSPEED},
                                      {"hf", v1::EXPORT_FORMAT_HF},
                                      {"accelerate", v1::EXPORT_FORMAT_ACCELERATE},
                                      {"env", v1::EXPORT_FORMAT_ENV},
                                      {"model", v1::EXPORT_FORMAT_MODEL},
                                      {"hbmtune", v1::EXPORT_FORMAT_HBMTUNE}};

v1::ExportFormat ParseFormat(const std::string& name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return format.value;
  }
  return v1::EXPORT_FORMAT_UNSPECIFIED;
}

// "hf and env": formats that the config needs beside the one that was asked for.
std::string NameAll(const v1::ExportResponse& answer) {
  std::vector<std::string> names;
  for (const Format& format : kFormats) {
    for (int needed : answer.also_needed()) {
      if (format.value == needed) names.push_back("--format " + format.name);
    }
  }
  return JoinWords(names, "and");
}

absl::StatusOr<ExitCode> RunExport(const ExportFlags& flags) {
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  v1::ExportRequest request;
  request.set_format(ParseFormat(flags.format));
  if (flags.trial.empty()) {
    request.set_study(flags.study);
  } else {
    auto trial = FindTrial(**connection, flags.study, flags.trial);
    if (!trial.ok()) return trial.status();
    request.set_trial(trial->name());
  }
  auto answer = Call((*connection)->tuning(), &v1::Tuning::StubInterface::Export, request);
  if (!answer.ok()) return answer.status();
  const std::string& text = answer->text();
  WriteOut(stdout, text + (text.ends_with("\n") ? "" : "\n"));
  if (std::string others = NameAll(*answer); !others.empty()) {
    std::fprintf(stderr, "hbmtune: this file is not all of the config: see also %s\n",
                 others.c_str());
  }
  return kDone;
}

}  // namespace

void AddExport(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("export", "print a config as a framework's own file or environment");
  verb->footer(
      "examples\n"
      "  hbmtune export 7 --format deepspeed > ds_config.json\n"
      "  hbmtune export 7 --format accelerate > accelerate.yaml\n"
      "  hbmtune export 7 --trial 3 --format hf > training_args.json\n"
      "  eval \"$(hbmtune export 7 --format env)\"; python train.py");
  auto flags = std::make_shared<ExportFlags>();
  AddStudy(*verb, flags->study);
  std::vector<std::string> formats;
  for (const Format& format : kFormats) formats.push_back(format.name);
  AddChoice(*verb, "--format", formats,
            "a DeepSpeed JSON, Transformers TrainingArguments as JSON (with LoRA also a "
            "\"lora_config\" for PEFT, to be taken out first), an Accelerate YAML, "
            "environment variables, the arguments of from_pretrained as JSON, or every field as "
            "JSON",
            flags->format)
      ->required()
      ->group("output");
  verb->add_option("--trial", flags->trial, "the config of that trial [the recommended one]")
      ->type_name("INT")
      ->group("output");
  flags->connection.AddTo(*verb);
  verb->callback([flags, &invocation] { invocation.run = [flags] { return RunExport(*flags); }; });
}

}  // namespace hbmtune::client
