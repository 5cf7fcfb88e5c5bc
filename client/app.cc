#include "client/app.h"

#include <CLI/Config.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/flags.h"
#include "client/help.h"
#include "client/interrupt.h"
#include "client/output.h"
#include "client/text.h"
#include "kernels/core/nearest.h"

namespace hbmtune::client {
namespace {

constexpr const char* kExamples =
    "examples\n"
    "  hbmtune tune --local --model llama2-13b --device model:mi210 \\\n"
    "      --framework hf-sdpa+deepspeed\n"
    "  hbmtune estimate --local --model llama3-8b --device model:mi300x \\\n"
    "      --precision bf16 --micro-batch 4\n"
    "\n"
    "exit codes: 0 done, 1 failed, 2 usage or invalid input, 3 nothing fits,\n"
    "            4 daemon unreachable, 130 interrupted";

// The verb that was being parsed, or the whole app.
const CLI::App& Parsed(const CLI::App& app) {
  auto verbs = app.get_subcommands();
  return verbs.empty() ? app : *verbs.back();
}

// A word that nobody knows: a flag, a verb, or a value too many.
std::string Unexpected(const CLI::App& app) {
  const CLI::App& verb = Parsed(app);
  auto left = app.remaining(true);
  std::string word = left.empty() ? "?" : left.front();
  word = word.substr(0, word.find('='));
  std::vector<std::string> known;
  bool flag = word.starts_with("-");
  if (flag) {
    for (const CLI::Option* option : verb.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else if (&verb == &app) {
    for (const CLI::App* other : app.get_subcommands({})) known.push_back(other->get_name());
  }
  std::string what = flag ? "unknown flag " : &verb == &app ? "unknown verb " : "unexpected ";
  return what + word + DidYouMean(word, known) + "; see hbmtune " +
         (&verb == &app ? "" : verb.get_name() + " ") + "--help";
}

int Fail(const CLI::App& app, const CLI::ParseError& error) {
  std::string sentence = error.what();
  bool no_verb = app.get_subcommands().empty();
  bool nothing_left = app.remaining(true).empty();
  if (no_verb && nothing_left) {
    sentence = "a verb is missing; see hbmtune --help";
  } else if (no_verb || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    sentence = Unexpected(app);
  }
  return Report(absl::InvalidArgumentError(sentence));
}

}  // namespace

void OutputFlag::AddTo(CLI::App& app) {
  AddChoice(app, "--output", {"text", "json"}, "for people, or JSON for programs [text]", format)
      ->group("output");
}

void AddStudy(CLI::App& app, std::string& study) {
  app.add_option("STUDY", study, "number of the study (see hbmtune studies)")
      ->required()
      ->group("arguments");
}

void BuildApp(CLI::App& app, Invocation& invocation) {
  app.name("hbmtune");
  app.description(
      "Finds the batch size, checkpointing, precision, offload and ZeRO settings that train a "
      "model fastest on a GPU without running out of memory.");
  UseHelpText(app);
  app.option_defaults()->take_last();  // of a flag that is given twice
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("--version", "hbmtune " HBMTUNE_VERSION, "the version");
  app.footer(kExamples);
  AddTune(app, invocation);
  AddEstimate(app, invocation);
  AddSweep(app, invocation);
  AddLadder(app, invocation);
  AddVerify(app, invocation);
  AddRecommend(app, invocation);
  AddExport(app, invocation);
  AddStudies(app, invocation);
  AddShow(app, invocation);
  AddWatch(app, invocation);
  AddTop(app, invocation);
  AddCancel(app, invocation);
  AddDevices(app, invocation);
  AddCalibrate(app, invocation);
  AddSchema(app, invocation);
  AddCompletion(app, invocation);
  app.require_subcommand(1);
}

namespace {

int ParseAndRun(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (IsUtf8(argv[i])) continue;
    return Report(absl::InvalidArgumentError("argument " + std::to_string(i) +
                                             " of the command line is not UTF-8 text"));
  }
  Invocation invocation;
  CLI::App app;
  BuildApp(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    WriteOut(stdout, HelpText(Parsed(app)));
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    WriteOut(stdout, std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    return Fail(app, error);
  }
  absl::StatusOr<ExitCode> code = invocation.run();
  return code.ok() ? *code : Report(code.status());
}

}  // namespace

int ClientMain(int argc, char** argv) {
  OpenStandardFiles();
  setenv("GRPC_VERBOSITY", "NONE", 0);  // its lines would stand beside our one sentence
  LeaveOnInterrupt();
  int code = ParseAndRun(argc, argv);
  absl::Status output = OutputStatus();
  return output.ok() ? code : Report(output);
}

}  // namespace hbmtune::client
