#include "tests/bench/daemon_load_parts.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/store/open.h"
#include "daemon/store/study_store.h"
#include "hbmtune/v1/tuning.grpc.pb.h"
#include "kernels/model/presets.h"
#include "proto/convert.h"

namespace hbmtune::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct PendingCall {
  grpc::ClientContext context;
  v1::Recommendation answer;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Recommendation>> reader;
  Clock::time_point begin;
};

class Echo final : public v1::Tuning::CallbackService {
 public:
  explicit Echo(v1::Recommendation answer) : answer_(std::move(answer)) {}
  grpc::ServerUnaryReactor* Recommend(grpc::CallbackServerContext* context,
                                      const v1::RecommendRequest*,
                                      v1::Recommendation* response) override {
    *response = answer_;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const v1::Recommendation answer_;
};

void Must(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

Workload WorkloadNumber(int number) {
  Workload workload;
  workload.model = *FindPreset("llama2-7b");
  workload.seq_len = 256 + number;
  return workload;
}

}  // namespace

double Load::Percentile(double share) {
  if (latencies_seconds.empty()) return 0;
  std::sort(latencies_seconds.begin(), latencies_seconds.end());
  const auto last = static_cast<double>(latencies_seconds.size() - 1);
  return latencies_seconds[static_cast<size_t>(share * last)];
}

Load SendRecommend(const std::shared_ptr<grpc::Channel>& channel,
                   const std::vector<v1::RecommendRequest>& questions, int outstanding,
                   double seconds, int64_t most_requests) {
  auto stub = v1::Tuning::NewStub(channel);
  grpc::CompletionQueue queue;
  std::mt19937 random(7);
  std::uniform_int_distribution<size_t> pick(0, questions.size() - 1);
  Load load;
  const auto begin = Clock::now();
  int64_t sent = 0;
  auto send = [&] {
    auto* call = new PendingCall;
    call->begin = Clock::now();
    call->reader = stub->AsyncRecommend(&call->context, questions[pick(random)], &queue);
    call->reader->Finish(&call->answer, &call->status, call);
    ++sent;
  };
  for (int i = 0; i < outstanding; ++i) send();
  void* tag = nullptr;
  bool ok = false;
  while (load.requests < sent && queue.Next(&tag, &ok)) {
    std::unique_ptr<PendingCall> call(static_cast<PendingCall*>(tag));
    ++load.requests;
    if (!call->status.ok()) ++load.failures;
    if (load.latencies_seconds.size() < 1'000'000) {
      load.latencies_seconds.push_back(Since(call->begin));
    }
    if (Since(begin) < seconds && sent < most_requests) send();
  }
  load.seconds = Since(begin);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return load;
}

int ServeEcho(const std::string& socket, const std::string& answer_file) {
  std::ifstream file(answer_file, std::ios::binary);
  v1::Recommendation answer;
  if (!answer.ParseFromIstream(&file)) return 1;
  Echo echo(std::move(answer));
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&echo);
  auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  server->Wait();
  return 0;
}

std::vector<v1::RecommendRequest> FillStore(const std::string& state_dir, int studies,
                                            int trials_each) {
  daemon::SystemClock clock;
  daemon::Log log(daemon::LogFormat::kLogfmt, daemon::LogLevel::kError, "");
  auto database = daemon::OpenStore(state_dir, clock, log);
  Must(database.status());
  daemon::StudyStore store(**database);
  std::vector<v1::RecommendRequest> questions;
  for (int i = 0; i < studies; ++i) {
    daemon::StudyRecord study;
    study.spec.workload = WorkloadNumber(i);
    study.spec.device = "model:mi210";
    study.create_time = study.start_time = study.end_time = clock.Now();
    Must(store.CreateStudy(study));
    for (int number = 1; number <= trials_each; ++number) {
      daemon::TrialRecord trial;
      trial.study_id = study.id;
      trial.number = number;
      trial.state = daemon::TrialState::kFinished;
      trial.config.micro_batch = number;
      trial.start_time = trial.end_time = clock.Now();
      Estimate& estimate = trial.estimate.emplace();
      estimate.fits = true;
      estimate.tokens_per_second = 1000 + number;
      estimate.step_seconds = 1;
      estimate.peak_used_bytes = int64_t{number} << 28;
      ++study.progress.finished_trials;
      ++study.progress.fitting_trials;
      study.progress.best_trial = number;
      if (number == trials_each) study.state = daemon::StudyState::kSucceeded;
      Must(store.FinishTrial(trial, study));
    }
    v1::RecommendRequest& question = questions.emplace_back();
    ToProto(study.spec.workload, *question.mutable_workload());
    question.mutable_workload()->clear_model();
    question.mutable_model()->set_preset("llama2-7b");
    question.set_device("model:mi210");
  }
  return questions;
}

double CpuSeconds(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int64_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t all = 0;
  int64_t resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace hbmtune::bench
