#include <algorithm>
#include <map>
#include <memory>

#include "client/compare_devices.h"
#include "client/compare_report.h"
#include "client/conclude.h"
#include "client/connection.h"
#include "client/describe.h"
#include "client/follow_many.h"
#include "client/interrupt.h"
#include "client/output.h"
#include "client/progress.h"
#include "client/study_flags.h"
#include "client/text.h"
#include "client/verbs.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

constexpr const char* kFooter =
    "examples\n"
    "  hbmtune compare --local --model llama2-13b --framework hf-sdpa+deepspeed\n"
    "  hbmtune compare --local --model llama3-8b --device mi250x --device mi300x \\\n"
    "      --price mi250x=1.10 --price mi300x=2.40\n"
    "  hbmtune compare --model ./config.json --seq-len 4096 --world-size 8 \\\n"
    "      --framework hf-sdpa+deepspeed --pin zero.stage=3 --output json\n"
    "\n"
    "One study a device, as hbmtune tune --device model:NAME makes it; all are\n"
    "modelled, nothing runs on a GPU. A device is what one rank trains on: mi250x is\n"
    "one GCD, half of a card, so give half of the card's price. With prices the\n"
    "order is by dollars a token; a job of several ranks pays for as many devices.\n"
    "Ctrl-C cancels all the studies; what had been tried by then is shown.\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 usage, 3 nothing fits on any device, 4 daemon\n"
    "unreachable, 130 interrupted.";

struct CompareFlags {
  StudyFlags study;
  std::vector<std::string> devices;
  std::vector<std::string> prices;
  ConnectionFlags connection;
  OutputFlag output;

  void AddTo(CLI::App& app);
};

void CompareFlags::AddTo(CLI::App& app) {
  study.workload.AddModelTo(app);
  app.add_option("--device", devices,
                 "a profile: mi300x or model:mi300x; may be repeated [every GPU's]")
      ->type_name("DEVICE")
      ->allow_extra_args(false)
      ->take_all()
      ->group("on what");
  app.add_option("--price", prices,
                 "dollars an hour for one such device (of mi250x, one GCD); may be repeated")
      ->type_name("NAME=DOLLARS")
      ->allow_extra_args(false)
      ->take_all()
      ->group("on what");
  study.ceiling.AddTo(app);
  study.AddSearchTo(app, "time for each device [no limit: a modelled one takes seconds]");
  output.AddTo(app);
  connection.AddTo(app);
  study.pinned.AddTo(app);
}

std::vector<v1::Study> StudiesOf(const std::vector<Compared>& compared) {
  std::vector<v1::Study> studies;
  for (const Compared& device : compared) {
    if (device.refusal.ok() && !device.study.name().empty()) studies.push_back(device.study);
  }
  return studies;
}

constexpr std::chrono::seconds kCancelTime{2};

// One study a device. What one device alone cannot do is said in its row; what all refuse, or a
// daemon that takes no more, ends the comparison, and nothing of it stays.
absl::Status Start(const Connection& connection, const StudyFlags& flags,
                   std::vector<Compared>& compared) {
  size_t refused = 0;
  for (Compared& device : compared) {
    auto request = flags.Request(device.device.name());
    if (!request.ok()) return request.status();
    auto study = Call(connection.tuning(), &v1::Tuning::StubInterface::CreateStudy, *request);
    if (study.ok()) {
      device.study = *std::move(study);
      continue;
    }
    device.refusal = study.status();
    const bool of_device = absl::IsInvalidArgument(device.refusal) ||
                           absl::IsFailedPrecondition(device.refusal);
    if (of_device && ++refused < compared.size()) continue;
    CancelStudies(connection, StudiesOf(compared), kCancelTime);
    return device.refusal;
  }
  return absl::OkStatus();
}

// On a terminal a live line, elsewhere a line for each device whose study has ended.
class Progress {
 public:
  void Look(const std::vector<v1::Study>& studies);
  void Finish() { terminal_.ClearLive(); }

 private:
  Terminal terminal_{stderr};
  std::map<std::string, bool> ended_;
  std::map<std::string, WaitNote> notes_;
};

void Progress::Look(const std::vector<v1::Study>& studies) {
  size_t ended = 0;
  int64_t trials = 0;
  double seconds = 0;
  std::string wait;
  const v1::Study* best = nullptr;
  for (const v1::Study& study : studies) {
    const v1::Progress& progress = study.progress();
    ended += HasEnded(study);
    trials += progress.finished_trials();
    if (!HasEnded(study) && wait.empty()) wait = study.message();
    seconds = std::max(seconds, progress.elapsed_seconds());
    const double speed = progress.best_tokens_per_second();
    if (speed > (best == nullptr ? 0 : best->progress().best_tokens_per_second())) best = &study;
    if (terminal_.interactive()) continue;
    notes_[study.name()].OnStudy(study);
    if (!HasEnded(study) || std::exchange(ended_[study.name()], true)) continue;
    const bool searched = study.state() == v1::STUDY_STATE_SUCCEEDED;
    const std::string what = speed > 0   ? "best " + FormatNumber(speed) + " tok/s"
                             : searched ? "nothing fits"
                             : study.state() == v1::STUDY_STATE_FAILED ? "failed"
                                                                       : "cancelled";
    terminal_.Print(ShortName(study.device()) + ": " + Trials(progress) + ", " + what + ", " +
                    FormatDuration(progress.elapsed_seconds()));
  }
  std::string line = " " + std::to_string(ended) + "/" + std::to_string(studies.size()) +
                     " devices · " + std::to_string(trials) + " trials";
  if (best != nullptr) {
    line += " · " + ShortName(best->device()) + " " +
            FormatNumber(best->progress().best_tokens_per_second()) + " tok/s";
  }
  if (seconds > 0) line += " · " + FormatDuration(seconds);
  terminal_.Live(wait.empty() ? line : line + " · waiting: " + wait);
}

// Why a device has no config, in a few words.
std::string Shortage(const RecommendationOutput& found) {
  if (VerdictOn(found).code == kFailed) return "no trial ended within the budget";
  if (!found.shortfall) return found.why;
  const Estimate& least = found.shortfall->estimate;
  std::string text = "does not fit: ";
  if (DeviceIsShort(least)) {
    return text + "the least takes " + FormatBytes(least.peak_used_bytes) + ", " +
           FormatBytes(least.peak_used_bytes - least.ceiling_bytes) + " too much";
  }
  if (HostIsShort(least, found.ceiling.host_bytes)) {
    return text + "the least needs " + DescribeHostNeed(least, found.ceiling.host_bytes);
  }
  return found.shortfall->message;
}

void Fill(const RecommendationOutput& found, ComparedDeviceOutput& output) {
  output.limited_by = found.limited_by;
  output.why = found.why;
  output.trials = found.trials;
  output.out_of_memory_trials = found.out_of_memory_trials;
  output.shortfall = found.shortfall;
  output.capacity_bytes = found.ceiling.capacity_bytes;
  output.ceiling_bytes = found.ceiling.device_bytes;
  if (!found.train_config || !found.estimate) {
    output.message = Shortage(found);
    return;
  }
  output.train_config = found.train_config;
  output.description = DescribeConfig(*found.train_config, found.workload.framework);
  output.estimate = found.estimate;
  output.evidence = found.evidence;
  const Estimate& estimate = *found.estimate;
  output.tokens_per_second = estimate.tokens_per_second;
  output.peak_reserved_bytes = estimate.peak_reserved_bytes;
  output.peak_used_bytes = estimate.peak_used_bytes;
  output.margin_bytes = estimate.capacity_bytes - estimate.peak_used_bytes;
}

absl::StatusOr<ComparedDeviceOutput> Conclude(const Connection& connection,
                                              const Compared& device) {
  ComparedDeviceOutput output;
  output.device = device.device.name();
  output.product = device.device.product();
  output.capacity_bytes = device.device.memory_bytes();
  output.dollars_per_hour = device.dollars_per_hour;
  if (!device.refusal.ok()) {
    output.message = std::string(device.refusal.message());
    return output;
  }
  output.study = device.study.name();
  output.state = StateName(device.study.state());
  if (device.study.state() == v1::STUDY_STATE_FAILED) {
    output.message = "failed: " + device.study.message();
    return output;
  }
  auto found = RecommendFor(connection, device.study.name());
  if (absl::IsFailedPrecondition(found.status())) {
    output.message = "cancelled before a trial ended";
    return output;
  }
  if (!found.ok()) return found.status();
  Fill(ToOutput(*found), output);
  return output;
}

ExitCode CodeOf(const CompareOutput& output) {
  if (!output.complete) return Interrupted() ? kInterrupted : kFailed;
  if (!output.fastest.empty()) return kDone;
  const bool answered =
      std::any_of(output.devices.begin(), output.devices.end(),
                  [](const auto& device) { return device.shortfall.has_value(); });
  return answered ? kNothingFits : kFailed;
}

absl::StatusOr<std::vector<Compared>> ChooseAndPrice(const Connection& connection,
                                                     const CompareFlags& flags) {
  auto profiles = ListProfiles(connection);
  if (!profiles.ok()) return profiles.status();
  auto compared = Choose(flags.devices, *profiles);
  if (!compared.ok()) return compared.status();
  if (absl::Status status = SetPrices(flags.prices, *compared); !status.ok()) return status;
  return compared;
}

absl::StatusOr<ExitCode> RunCompare(const CompareFlags& flags) {
  // What is wrong on the command line is said before a daemon is looked for.
  if (auto sample = flags.study.Request("model:"); !sample.ok()) return sample.status();
  for (const std::string& price : flags.prices) {
    if (auto parsed = ParsePrice(price); !parsed.ok()) return parsed.status();
  }
  auto connection = Connect(flags.connection);
  if (!connection.ok()) return connection.status();
  auto compared = ChooseAndPrice(**connection, flags);
  if (!compared.ok()) return compared.status();
  NoteTwoInterrupts();  // from here on there may be studies to cancel
  if (absl::Status status = Start(**connection, flags.study, *compared); !status.ok()) {
    return status;
  }
  Progress progress;
  auto studies = FollowStudies(**connection, StudiesOf(*compared),
                               [&](const auto& seen) { progress.Look(seen); });
  progress.Finish();
  if (!studies.ok()) return studies.status();
  CompareOutput output;
  output.workload = FromProto<Workload>(studies->front().workload());
  auto ended = studies->begin();
  for (Compared& device : *compared) {
    if (device.refusal.ok()) device.study = *ended++;
    output.complete = output.complete && device.study.state() != v1::STUDY_STATE_CANCELLED;
    auto row = Conclude(**connection, device);
    if (!row.ok()) return row.status();
    output.devices.push_back(*std::move(row));
  }
  Rank(output);
  if (flags.output.json()) {
    PrintJson(ToJson(output));
  } else {
    Terminal terminal(stdout);
    PrintComparison(terminal, output);
  }
  return CodeOf(output);
}

}  // namespace

void AddCompare(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand(
      "compare", "which card for this workload: the best config of each, predicted, by price");
  verb->footer(kFooter);
  auto flags = std::make_shared<CompareFlags>();
  flags->AddTo(*verb);
  verb->callback(
      [flags, &invocation] { invocation.run = [flags] { return RunCompare(*flags); }; });
}

}  // namespace hbmtune::client
