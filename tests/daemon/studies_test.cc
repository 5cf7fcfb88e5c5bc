// Studies through the socket: from CreateStudy to the recommendation.
#include <gmock/gmock.h>

#include <map>

#include "daemon/store/study_store.h"
#include "tests/daemon/server_fixture.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;

using StudiesTest = ServerTest;

TEST_F(StudiesTest, AModelledStudyEndsWithARecommendation) {
  const std::string name = MustCreate(ModelRequest());
  EXPECT_EQ(name, "studies/1");
  auto events = Watch(name);
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(last_watch_.ok()) << last_watch_.error_message();
  const v1::Study& study = events.back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED) << study.message();
  EXPECT_GT(study.space().legal(), 100);
  EXPECT_EQ(study.workload().model().hidden(), 5120);

  grpc::ClientContext context;
  v1::RecommendRequest request;
  request.set_study(name);
  v1::Recommendation answer;
  ASSERT_TRUE(tuning_->Recommend(&context, request, &answer).ok());
  EXPECT_EQ(answer.best().evidence(), v1::EVIDENCE_PREDICTED);
  EXPECT_FALSE(answer.best().has_measurement());
  EXPECT_TRUE(answer.best().estimate().fits());
  EXPECT_EQ(answer.trials(), study.progress().finished_trials());
  EXPECT_EQ(answer.best().tokens_per_second(), study.progress().best_tokens_per_second());
  EXPECT_GE(answer.best().description_size(), 2);
}

TEST_F(StudiesTest, TheSameQuestionIsAnsweredFromEarlierStudies) {
  v1::RecommendRequest request;
  *request.mutable_workload() = ModelRequest().workload();
  *request.mutable_model() = ModelRequest().model();
  request.set_device("model:mi210");
  v1::Recommendation answer;
  {
    grpc::ClientContext context;
    grpc::Status status = tuning_->Recommend(&context, request, &answer);
    EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
    EXPECT_EQ(InfoOf(status).reason(), "NO_STUDY");
  }
  Watch(MustCreate(ModelRequest()));
  grpc::ClientContext context;
  grpc::Status status = tuning_->Recommend(&context, request, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer.study(), "studies/1");
}

TEST_F(StudiesTest, AHostStudyRunsProbesAndFindsTheLimit) {
  const std::string name = MustCreate(HostRequest("plain"));
  auto events = Watch(name);
  const v1::Study& study = events.back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED) << study.message();
  auto trials = Trials(name);
  EXPECT_EQ(static_cast<int64_t>(trials.size()), study.progress().finished_trials());
  int64_t out_of_memory = 0;
  for (const v1::Trial& trial : trials) {
    EXPECT_EQ(trial.state(), v1::TRIAL_STATE_FINISHED);
    EXPECT_EQ(trial.evidence(), v1::EVIDENCE_MEASURED);
    if (trial.measurement().outcome() != v1::OUTCOME_OUT_OF_MEMORY) continue;
    ++out_of_memory;
    EXPECT_GT(trial.train_config().micro_batch(), 20);
    EXPECT_EQ(trial.measurement().op(), "linear");
  }
  EXPECT_EQ(study.progress().out_of_memory_trials(), out_of_memory);
  EXPECT_GT(out_of_memory, 0) << "the study must touch the limit";
  EXPECT_EQ(JournalLines("finished").size(), trials.size());
  bool saw_step = false;
  for (const auto& event : events) saw_step |= event.has_trial_progress();
  EXPECT_TRUE(saw_step);
}

TEST_F(StudiesTest, CancelStopsTheProbeAndKeepsWhatIsFinished) {
  const std::string name = MustCreate(HostRequest("slow"));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  v1::Study study = Cancel(name);
  EXPECT_EQ(study.state(), v1::STUDY_STATE_CANCELLED);
  auto trials = Trials(name);
  ASSERT_EQ(trials.size(), 1U);
  EXPECT_EQ(trials[0].state(), v1::TRIAL_STATE_ABANDONED);
  EXPECT_EQ(Cancel(name).state(), v1::STUDY_STATE_CANCELLED);  // again: as it is
  grpc::ClientContext context;
  v1::RecommendRequest recommend;
  recommend.set_study(name);
  v1::Recommendation answer;
  grpc::Status status = tuning_->Recommend(&context, recommend, &answer);
  EXPECT_EQ(status.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "studies/1 was cancelled before a trial ended");
}

TEST_F(StudiesTest, OneStudyADeviceRunsAndTheOthersWait) {
  const std::string first = MustCreate(HostRequest("slow"));
  const std::string second = MustCreate(HostRequest("slow"));
  const std::string elsewhere = MustCreate(ModelRequest());
  EXPECT_EQ(Watch(elsewhere).back().study().state(), v1::STUDY_STATE_SUCCEEDED);
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Get(first).state(), v1::STUDY_STATE_RUNNING);
  EXPECT_EQ(Get(second).state(), v1::STUDY_STATE_QUEUED);
  EXPECT_EQ(Get(second).message(), "study 1 runs on host");
  const std::string third = MustCreate(HostRequest("slow"));
  EXPECT_EQ(Get(third).message(), "study 1 runs on host, 1 more before this one");
  EXPECT_EQ(Cancel(third).state(), v1::STUDY_STATE_CANCELLED);
  grpc::ClientContext context;
  v1::GetDeviceRequest request;
  request.set_name("host");
  v1::Device device;
  ASSERT_TRUE(devices_->GetDevice(&context, request, &device).ok());
  EXPECT_EQ(device.state(), v1::DEVICE_STATE_PROBING);
  EXPECT_EQ(device.running_study(), first);
  EXPECT_EQ(device.queued_studies(), 1);
  EXPECT_EQ(Cancel(second).state(), v1::STUDY_STATE_CANCELLED);
  EXPECT_EQ(Cancel(first).state(), v1::STUDY_STATE_CANCELLED);
}

TEST_F(StudiesTest, AWaitingStudyIsToldWhenAnotherBeforeItGoes) {
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) names.push_back(MustCreate(HostRequest("slow")));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  v1::WatchStudyRequest request;
  request.set_name(names[3]);
  auto stream = tuning_->WatchStudy(&context, request);
  const auto await = [&](const std::string& message) {
    v1::StudyEvent event;
    while (stream->Read(&event)) {
      if (event.study().message() == message) return true;
    }
    return false;
  };
  EXPECT_TRUE(await("study 1 runs on host, 2 more before this one"));
  Cancel(names[1]);
  EXPECT_TRUE(await("study 1 runs on host, 1 more before this one"));
  Cancel(names[0]);
  EXPECT_TRUE(await("study 3 runs on host"));
  grpc::ClientContext acquire;
  v1::AcquireLeaseRequest lease;
  lease.set_job_id("job");
  lease.add_devices("host");
  v1::Lease granted;
  ASSERT_TRUE(devices_->AcquireLease(&acquire, lease, &granted).ok());
  EXPECT_TRUE(await("study 3 runs on host (waits: device host is leased by job job)"));
  Cancel(names[3]);
  Cancel(names[2]);
}

TEST_F(StudiesTest, ACrashingProbeIsATrialAndNotTheEnd) {
  v1::CreateStudyRequest request = HostRequest("crash");
  request.set_max_trials(2);
  const std::string name = MustCreate(request);
  v1::Study study = Watch(name).back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED);
  EXPECT_EQ(study.progress().fitting_trials(), 0);
  for (const v1::Trial& trial : Trials(name)) {
    EXPECT_EQ(trial.measurement().outcome(), v1::OUTCOME_CRASHED);
    EXPECT_EQ(trial.evidence(), v1::EVIDENCE_PREDICTED);  // it took no step
  }
}

TEST_F(StudiesTest, SaysWhatWouldFitWhenNothingDoes) {
  v1::CreateStudyRequest request = ModelRequest();
  (*request.mutable_pins())["offload.optimizer"] = "none";
  (*request.mutable_pins())["zero.stage"] = "0";
  const std::string name = MustCreate(request);
  v1::Study study = Watch(name).back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED);
  EXPECT_THAT(study.message(), HasSubstr("nothing fits"));
  grpc::ClientContext context;
  v1::RecommendRequest recommend;
  recommend.set_study(name);
  v1::Recommendation answer;
  ASSERT_TRUE(tuning_->Recommend(&context, recommend, &answer).ok());
  EXPECT_FALSE(answer.has_best());
  EXPECT_GT(answer.shortfall().estimate().peak_used_bytes(),
            answer.shortfall().estimate().ceiling_bytes());
  EXPECT_GT(answer.shortfall().hints_size(), 0);
}

TEST_F(StudiesTest, ARestartGoesOnWithoutRepeatingAFinishedTrial) {
  const std::string name = MustCreate(HostRequest("plain"));
  while (JournalLines("finished").size() < 2) absl::SleepFor(absl::Milliseconds(5));
  Stop();
  Start();
  v1::Study study = Watch(name).back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED) << study.message();
  std::map<std::string, int> finished;
  for (const std::string& line : JournalLines("finished")) {
    if (line.ends_with(" CANCELLED")) continue;
    EXPECT_EQ(++finished[line.substr(0, line.rfind(' '))], 1) << line;
  }
  EXPECT_EQ(static_cast<int64_t>(finished.size()), study.progress().finished_trials());
}

// As a daemon leaves it that is killed between a cancel and the end of the trial.
TEST_F(StudiesTest, ACancelledStudyOfAKilledDaemonEndsAndRunsNothing) {
  const std::string name = MustCreate(HostRequest("slow"));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  Stop();
  {
    auto database = Database::Open(dir_.path() + "/hbmtune.db");
    ASSERT_TRUE(database.ok()) << database.status();
    ASSERT_TRUE((*database)->Execute("UPDATE trials SET state='RUNNING'").ok());
    ASSERT_TRUE(StudyStore(**database).NoteCancel(1, "by somebody").ok());
  }
  Start();
  v1::Study study = Watch(name).back().study();
  EXPECT_EQ(study.state(), v1::STUDY_STATE_CANCELLED);
  EXPECT_EQ(study.message(), "by somebody");
  EXPECT_TRUE(study.has_end_time());
  auto trials = Trials(name);
  ASSERT_EQ(trials.size(), 1U);
  EXPECT_EQ(trials[0].state(), v1::TRIAL_STATE_ABANDONED);
  EXPECT_EQ(trials[0].attempts(), 1);
  EXPECT_EQ(JournalLines("started").size(), 1U);
}

// A drain has the first word with the probe, and still the cancel is not lost.
TEST_F(StudiesTest, ACancelWhileTheDaemonLeavesHoldsAfterTheRestart) {
  const std::string name = MustCreate(HostRequest("slow"));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  server_->Drain();
  Cancel(name);
  Stop();
  Start();
  EXPECT_EQ(Watch(name).back().study().state(), v1::STUDY_STATE_CANCELLED);
  EXPECT_EQ(JournalLines("started").size(), 1U);
}

TEST_F(StudiesTest, WatchingADaemonThatLeavesEndsWithUnavailable) {
  const std::string name = MustCreate(HostRequest("slow"));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  std::thread stopper([this] {
    absl::SleepFor(absl::Milliseconds(200));
    server_->Drain();
  });
  Watch(name);
  stopper.join();
  EXPECT_EQ(last_watch_.error_code(), grpc::UNAVAILABLE) << last_watch_.error_message();
  Stop();
  Start();
  EXPECT_EQ(Cancel(name).state(), v1::STUDY_STATE_CANCELLED);
}

}  // namespace
}  // namespace hbmtune::daemon
