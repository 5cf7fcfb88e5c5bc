// What the daemon takes under load, beside an echo server that gives the same answer by the same
// library. A store of 10,000 trials of 200 workloads, one trial completing a second all the time.
// One line of JSON for each part; run alone on a quiet machine:
//
//   daemon_load [PART…]     rate, busy, streams, memory, requests, gpus; all without one
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <thread>

#include "hbmtune/v1/devices.grpc.pb.h"
#include "hbmtune/v1/tuning.grpc.pb.h"
#include "kernels/core/json.h"
#include "tests/bench/daemon_load_parts.h"
#include "tests/support/daemon_process.h"
#include "tests/support/fake_node.h"
#include "tests/support/temp_dir.h"

extern "C" char** environ;

namespace hbmtune::bench {
namespace {

using testing::DaemonProcess;

constexpr int kOutstanding = 8;
constexpr int kPairs = 7;
constexpr double kSeconds = 2;

void Sleep(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

template <class Method, class Request, class Response>
void MustCall(Method method, v1::Tuning::Stub& stub, const Request& request, Response* response) {
  grpc::ClientContext context;
  grpc::Status status = (stub.*method)(&context, request, response);
  if (!status.ok()) throw std::runtime_error(status.error_message());
}

// A prober that finishes one trial a second, for as long as it lives; the first ones without rest.
class OneTrialASecond {
 public:
  explicit OneTrialASecond(std::shared_ptr<grpc::Channel> channel, int64_t restless = 0)
      : restless_(restless), stub_(v1::Tuning::NewStub(channel)), thread_([this] { Run(); }) {}
  ~OneTrialASecond() {
    stopping_ = true;
    thread_.join();
  }
  int64_t finished() const { return finished_; }

 private:
  void Run() {
    v1::CreateStudyRequest create;
    create.mutable_workload()->set_seq_len(128);
    create.mutable_model()->set_preset("tiny-llama");
    create.set_device("host");
    create.mutable_ceiling()->set_capacity_bytes(int64_t{1} << 30);
    create.set_budget_seconds(1e6);
    create.set_designer("random");
    create.set_client_probes(true);
    v1::Study study;
    MustCall(&v1::Tuning::Stub::CreateStudy, *stub_, create, &study);
    while (!stopping_) {
      grpc::ClientContext context;
      v1::SuggestTrialRequest ask;
      ask.set_study(study.name());
      ask.set_prober("load");
      v1::SuggestTrialResponse suggested;
      const bool any = stub_->SuggestTrial(&context, ask, &suggested).ok();
      if (any && suggested.has_trial()) {
        v1::CompleteTrialRequest complete;
        complete.set_trial(suggested.trial().name());
        complete.set_prober("load");
        complete.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
        complete.mutable_measurement()->set_tokens_per_second(1000);
        v1::Trial trial;
        MustCall(&v1::Tuning::Stub::CompleteTrial, *stub_, complete, &trial);
        ++finished_;
      }
      Sleep(finished_ < restless_ ? 0.01 : 1);
    }
  }

  const int64_t restless_;
  std::unique_ptr<v1::Tuning::Stub> stub_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> finished_ = 0;
  std::thread thread_;
};

// This program once more, as the echo server.
class EchoProcess {
 public:
  EchoProcess(const std::string& socket, const std::string& answer_file) {
    std::string self = std::filesystem::read_symlink("/proc/self/exe");
    std::vector<std::string> words = {self, "--echo", socket, answer_file};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&pid_, self.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) {
      throw std::runtime_error("cannot start the echo server");
    }
    while (!std::filesystem::exists(socket)) Sleep(0.01);
  }
  ~EchoProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

struct Bench {
  testing::TempDir folder;
  std::vector<v1::RecommendRequest> questions;
  std::unique_ptr<DaemonProcess> daemon;
  std::shared_ptr<grpc::Channel> channel;

  Bench() : questions(FillStore(folder.path(), 200, 50)) {
    const std::string socket = folder.path() + "/s";
    daemon = std::make_unique<DaemonProcess>(std::vector<std::string>{
        "--state-dir", folder.path(), "--socket", socket, "--http", "off", "--log-file",
        folder.path() + "/log", "--max-connections-per-user", "1024"});
    channel = testing::ConnectTo(socket);
  }
  Load Send(double seconds, int64_t most = INT64_MAX) {
    return SendRecommend(channel, questions, kOutstanding, seconds, most);
  }
};

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const std::string& part, Json json) {
  json["part"] = part;
  std::cout << json.dump() << std::endl;
}

// Recommend and the echo, in turns: what else the machine does falls on both.
void MeasureRate(Bench& bench) {
  v1::Recommendation answer;
  auto stub = v1::Tuning::NewStub(bench.channel);
  MustCall(&v1::Tuning::Stub::Recommend, *stub, bench.questions.front(), &answer);
  const std::string file = bench.folder.path() + "/answer";
  std::ofstream(file, std::ios::binary) << answer.SerializeAsString();
  const std::string socket = bench.folder.path() + "/echo";
  EchoProcess echo(socket, file);
  auto echo_channel = testing::ConnectTo(socket);
  OneTrialASecond trials(bench.channel);
  bench.Send(kSeconds);
  SendRecommend(echo_channel, bench.questions, kOutstanding, kSeconds);
  std::vector<double> ratios;
  std::vector<double> ours;
  std::vector<double> theirs;
  int64_t failures = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    Load daemon = bench.Send(kSeconds);
    Load floor = SendRecommend(echo_channel, bench.questions, kOutstanding, kSeconds);
    failures += daemon.failures + floor.failures;
    ours.push_back(daemon.rate());
    theirs.push_back(floor.rate());
    ratios.push_back(daemon.rate() / floor.rate());
  }
  Print("rate", {{"ratio", MedianOf(ratios)},
                 {"pairs", kPairs},
                 {"recommend_per_second", MedianOf(ours)},
                 {"echo_per_second", MedianOf(theirs)},
                 {"answer_bytes", answer.ByteSizeLong()},
                 {"trials_completed", trials.finished()},
                 {"failures", failures}});
}

// While a host study uses every core.
void MeasureBusy(Bench& bench) {
  auto stub = v1::Tuning::NewStub(bench.channel);
  v1::CreateStudyRequest create;
  create.mutable_workload()->set_seq_len(256);
  create.mutable_model()->set_preset("tiny-llama");
  create.set_device("host");
  create.mutable_ceiling()->set_capacity_bytes(int64_t{1} << 30);
  create.set_budget_seconds(120);
  v1::Study study;
  MustCall(&v1::Tuning::Stub::CreateStudy, *stub, create, &study);
  Sleep(3);
  bench.Send(1);
  Load load = bench.Send(20);
  v1::CancelStudyRequest cancel;
  cancel.set_name(study.name());
  MustCall(&v1::Tuning::Stub::CancelStudy, *stub, cancel, &study);
  Print("busy", {{"p50_seconds", load.Percentile(0.5)},
                 {"p99_seconds", load.Percentile(0.99)},
                 {"requests", load.requests},
                 {"probed_trials", study.progress().finished_trials()}});
}

class Watcher final : public grpc::ClientReadReactor<v1::MemorySample> {
 public:
  Watcher(v1::Devices::Stub& stub, std::atomic<int64_t>& samples) : samples_(samples) {
    request_.set_device("host");
    request_.set_period_seconds(1);
    stub.async()->WatchMemory(&context_, &request_, this);
    StartRead(&sample_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    ++samples_;
    StartRead(&sample_);
  }
  void OnDone(const grpc::Status&) override { done_ = true; }
  void Cancel() {
    context_.TryCancel();
    while (!done_) Sleep(0.001);
  }

 private:
  std::atomic<int64_t>& samples_;
  std::atomic<bool> done_ = false;
  grpc::ClientContext context_;
  v1::WatchMemoryRequest request_;
  v1::MemorySample sample_;
};

void MeasureStreams(Bench& bench) {
  constexpr int kStreams = 1000;
  constexpr double kTime = 20;
  auto stub = v1::Devices::NewStub(bench.channel);
  std::atomic<int64_t> samples = 0;
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < kStreams; ++i) watchers.push_back(std::make_unique<Watcher>(*stub, samples));
  Sleep(5);
  const int64_t first = samples;
  const double before = CpuSeconds(bench.daemon->pid());
  Sleep(kTime);
  const double used = CpuSeconds(bench.daemon->pid()) - before;
  Print("streams", {{"streams", kStreams},
                    {"samples_per_second", static_cast<double>(samples - first) / kTime},
                    {"core_ratio", used / kTime}});
  for (auto& watcher : watchers) watcher->Cancel();
}

// A line or a plateau: resident memory after every twentieth of the requests. The trials before
// them fill what the daemon keeps of its estimates (16 MiB, some 150 traces).
void MeasureMemory(Bench& bench, const std::string& part, bool trials_go_on) {
  constexpr int64_t kWarmTrials = 400;
  constexpr int64_t kPart = 50'000;
  constexpr int kParts = 20;
  constexpr double kMostSeconds = 60;  // of one part
  auto trials = std::make_unique<OneTrialASecond>(bench.channel, kWarmTrials);
  while (trials->finished() < kWarmTrials) Sleep(0.1);
  if (!trials_go_on) trials.reset();
  bench.Send(kMostSeconds, 2 * kPart);
  Json resident = Json::array({ResidentBytes(bench.daemon->pid())});
  int64_t requests = 0;
  for (int i = 0; i < kParts; ++i) {
    requests += bench.Send(kMostSeconds, kPart).requests;
    resident.push_back(ResidentBytes(bench.daemon->pid()));
  }
  const auto before = resident.front().get<int64_t>();
  const auto after = resident.back().get<int64_t>();
  Print(part, {{"requests", requests},
               {"before_bytes", before},
               {"after_bytes", after},
               {"bytes_per_request",
                static_cast<double>(after - before) / static_cast<double>(requests)},
               {"trials_completed", trials ? trials->finished() - kWarmTrials : 0},
               {"resident_bytes", resident}});
}

void MeasureWithTrials(Bench& bench) { MeasureMemory(bench, "memory", true); }
void MeasureRequests(Bench& bench) { MeasureMemory(bench, "requests", false); }

void MeasureGpus() {
  constexpr double kTime = 30;
  testing::FakeNode node;
  for (int i = 0; i < 8; ++i) node.AddGpu(testing::CardKind::kMi300x, i);
  testing::TempDir folder;
  DaemonProcess daemon({"--state-dir", folder.path(), "--socket", folder.path() + "/s", "--http",
                        "off", "--log-file", folder.path() + "/log", "--sysfs-root",
                        node.root()});
  Sleep(3);
  const double before = CpuSeconds(daemon.pid());
  Sleep(kTime);
  Print("gpus", {{"gpus", 8}, {"core_ratio", (CpuSeconds(daemon.pid()) - before) / kTime}});
}

int Run(const std::vector<std::string>& parts) {
  const std::map<std::string, void (*)(Bench&)> measures = {{"rate", MeasureRate},
                                                            {"busy", MeasureBusy},
                                                            {"streams", MeasureStreams},
                                                            {"memory", MeasureWithTrials},
                                                            {"requests", MeasureRequests}};
  for (const std::string& part : parts) {
    if (part == "gpus") {
      MeasureGpus();
      continue;
    }
    auto measure = measures.find(part);
    if (measure == measures.end()) {
      std::cerr << "daemon_load: there is no part '" << part << "'\n";
      return 2;
    }
    Bench bench;  // of its own: no part sees another's trials
    measure->second(bench);
  }
  return 0;
}

}  // namespace
}  // namespace hbmtune::bench

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "--echo") {
    return hbmtune::bench::ServeEcho(words[1], words[2]);
  }
  if (words.empty()) words = {"rate", "busy", "streams", "memory", "requests", "gpus"};
  return hbmtune::bench::Run(words);
}
