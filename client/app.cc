#include "client/app.h"

#include <CLI/Config.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
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

// What may follow a flag, for a sentence: " (INT)", " (bash, zsh)", or nothing.
std::string Taken(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = Parsed(app).get_option_no_throw(name);
  std::string type = option == nullptr ? "" : option->get_type_name();
  for (size_t at = 0; (at = type.find('|', at)) != std::string::npos; at += 2) {
    type.replace(at, 1, ", ");
  }
  if (type == "TEXT" || type == name) return "";
  return type.empty() ? "" : " (" + type + ")";
}

// The parser's own words made ours; those of our flags come as they are.
std::string Sentence(const CLI::App& app, const CLI::ParseError& error) {
  const std::string said = error.what();
  const std::string help = "; see hbmtune " + Parsed(app).get_name() + " --help";
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string name = said.substr(0, said.find(' '));
    return name + " is missing" + Taken(app, name) + help;
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string name = said.substr(0, said.find(':'));
    const CLI::Option* option = Parsed(app).get_option_no_throw(name);
    if (option != nullptr && option->count() > 1) {
      return name + " is given twice: hbmtune " + Parsed(app).get_name() + " takes one" +
             (name == "--device" ? "; hbmtune compare takes several" : "");
    }
    return name + " needs a value" + Taken(app, name) + help;
  }
  constexpr std::string_view kNoSwitch = "Could not convert: ";
  if (said.starts_with(kNoSwitch)) {
    const std::string name = said.substr(kNoSwitch.size(), said.find(" = ") - kNoSwitch.size());
    return name + " is given or left out, and takes no value" + help;
  }
  return said;
}

int Fail(const CLI::App& app, const CLI::ParseError& error) {
  std::string sentence = Sentence(app, error);
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

void AddDeviceNames(CLI::App& app, std::vector<std::string>& devices) {
  app.add_option("DEVICE", devices, "one or more devices (see hbmtune devices)")
      ->required()
      ->type_name("DEVICE")
      ->take_all()
      ->group("arguments");
}

void AddStudy(CLI::App& app, std::string& study) {
  app.add_option("STUDY", study, "number of the study (see hbmtune studies)")
      ->required()
      ->type_name("STUDY")
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
  AddCompare(app, invocation);
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
  AddLease(app, invocation);
  AddRelease(app, invocation);
  AddQuiesce(app, invocation);
  AddResume(app, invocation);
  AddCalibrate(app, invocation);
  AddSchema(app, invocation);
  AddCompletion(app, invocation);
  app.require_subcommand(1);
}

namespace {

// Flags in the spelling of their fields are taken too: --zero.reduce_bucket_size.
std::vector<std::string> SpellFlags(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const auto end = word.begin() + static_cast<ptrdiff_t>(std::min(word.find('='), word.size()));
    std::replace(word.begin(), end, '_', '-');
  }
  return words;
}

int ParseAndRun(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (IsUtf8(argv[i])) continue;
    return Report(absl::InvalidArgumentError("argument " + std::to_string(i) +
                                             " of the command line is not UTF-8 text"));
  }
  const std::vector<std::string> words = SpellFlags(argc, argv);
  std::vector<const char*> spelt;
  for (const std::string& word : words) spelt.push_back(word.c_str());
  Invocation invocation;
  CLI::App app;
  BuildApp(app, invocation);
  try {
    app.parse(argc, spelt.data());
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
