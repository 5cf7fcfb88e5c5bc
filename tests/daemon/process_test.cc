// hbmtuned as a process: how it starts, refuses to start, leaves, and what a kill leaves behind.
#include <absl/time/clock.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "daemon/store/database.h"
#include "hbmtune/v1/tuning.grpc.pb.h"
#include "tests/support/daemon_process.h"
#include "tests/support/http_get.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {
namespace {

using testing::DaemonProcess;
using ::testing::HasSubstr;

class ProcessTest : public ::testing::Test {
 protected:
  std::vector<std::string> Flags() {
    return {"--state-dir",     dir_.path(),
            "--socket",        socket_,
            "--http",          "off",
            "--probe-path",    FAKE_PROBE,
            "--probe-journal", dir_.path() + "/journal",
            "--log-file",      dir_.path() + "/log"};
  }
  std::vector<std::string> PrivateFlags() {
    std::vector<std::string> flags = Flags();
    flags.insert(flags.end(), {"--private", "--idle-exit-seconds", "0.5"});
    return flags;
  }
  static v1::CreateStudyRequest Request(const std::string& name) {
    v1::CreateStudyRequest request;
    request.mutable_workload()->set_seq_len(64);
    request.mutable_model()->set_config_json(
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
            "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
            "vocab_size": 256, "max_position_embeddings": 512})");
    request.mutable_model()->set_name(name);
    // One that fits: the fake probe must get as far as misbehaving.
    if (name != "plain") (*request.mutable_pins())["micro_batch"] = "4";
    request.set_device("host");
    request.mutable_ceiling()->set_capacity_bytes(64 << 20);
    request.set_budget_seconds(60);
    request.set_max_trials(12);
    return request;
  }
  static v1::Study Create(v1::Tuning::Stub& tuning, const v1::CreateStudyRequest& request) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::Study study;
    grpc::Status status = tuning.CreateStudy(&context, request, &study);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return study;
  }
  static v1::Study Watch(v1::Tuning::Stub& tuning, const std::string& name) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::WatchStudyRequest request;
    request.set_name(name);
    auto stream = tuning.WatchStudy(&context, request);
    v1::StudyEvent event;
    v1::Study study;
    while (stream->Read(&event)) {
      if (event.has_study()) study = event.study();
    }
    grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return study;
  }
  std::vector<std::string> JournalLines(const std::string& word) {
    std::ifstream file(dir_.path() + "/journal");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(word)) lines.push_back(line);
    }
    return lines;
  }
  void WaitForJournal(const std::string& word, size_t count) {
    while (JournalLines(word).size() < count) absl::SleepFor(absl::Milliseconds(2));
  }

  testing::TempDir dir_;
  std::string socket_ = dir_.path() + "/s";
};

TEST_F(ProcessTest, SaysWhereItServesAndLeavesOnSigterm) {
  DaemonProcess daemon(Flags());
  EXPECT_EQ(daemon.note(), "ready " + socket_ + "\n");
  daemon.Signal(SIGTERM);
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value()) << "it does not leave";
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << *status;
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(ProcessTest, RefusesASecondDaemonInOneSentence) {
  DaemonProcess daemon(Flags());
  DaemonProcess second(Flags());
  auto status = second.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 1);
  EXPECT_THAT(second.note(), HasSubstr("uses the state directory " + dir_.path()));
  EXPECT_THAT(second.Errors(), HasSubstr("process " + std::to_string(daemon.pid())));
  testing::TempDir elsewhere;
  std::vector<std::string> flags = Flags();
  flags[1] = elsewhere.path();
  DaemonProcess third(flags);
  EXPECT_THAT(third.note(), HasSubstr("listens on " + socket_));
}

TEST_F(ProcessTest, SaysWhyTheStateDirectoryCannotBeUsed) {
  std::vector<std::string> flags = Flags();
  flags[1] = "/dev/null/state";
  DaemonProcess daemon(flags);
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 1);
  const std::string errors = daemon.Errors();
  EXPECT_THAT(errors, HasSubstr("hbmtuned: cannot make the directory /dev/null/state"));
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
}

TEST_F(ProcessTest, CallsAWrongFlagAUsageError) {
  DaemonProcess daemon({"--state-dri", "x"});
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 2);
}

TEST_F(ProcessTest, ServesOnASocketWhosePathIsTooLong) {
  const std::string deep = dir_.path() + "/" + std::string(120, 'd');
  std::filesystem::create_directory(deep);
  socket_ = deep + "/s";
  DaemonProcess daemon(Flags());
  EXPECT_EQ(daemon.note(), "ready " + socket_ + "\n");
  v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
  EXPECT_EQ(Create(tuning, Request("plain")).name(), "studies/1");
}

TEST_F(ProcessTest, SigtermStopsARunningProbeToo) {
  DaemonProcess daemon(Flags());
  v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
  Create(tuning, Request("slow"));
  WaitForJournal("started", 1);
  daemon.Signal(SIGTERM);
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 0);
  EXPECT_EQ(JournalLines("finished").size(), 1U);
}

// Killed again and again at random moments of one study: no finished trial is lost or runs twice.
TEST_F(ProcessTest, AStudySurvivesKillsOfTheDaemon) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string name;
  for (int kill = 0; kill < 6; ++kill) {
    DaemonProcess daemon(Flags());
    v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
    if (name.empty()) name = Create(tuning, Request("plain")).name();
    absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<int>(5, 120)(random)));
    daemon.Signal(SIGKILL);
    daemon.WaitFor(60);
  }
  DaemonProcess daemon(Flags());
  v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
  v1::Study study = Watch(tuning, name);
  EXPECT_EQ(study.state(), v1::STUDY_STATE_SUCCEEDED) << study.message();

  grpc::ClientContext context;
  v1::ListTrialsRequest request;
  request.set_parent(name);
  v1::ListTrialsResponse trials;
  ASSERT_TRUE(tuning.ListTrials(&context, request, &trials).ok());
  std::map<std::string, int> finished;
  for (const std::string& line : JournalLines("finished")) {
    if (!line.ends_with(" CANCELLED")) ++finished[line.substr(9, line.rfind(' ') - 9)];
  }
  for (const v1::Trial& trial : trials.trials()) {
    if (trial.state() != v1::TRIAL_STATE_FINISHED) continue;
    // Three kills while it ran: given up without ever having finished.
    if (trial.measurement().outcome() == v1::OUTCOME_CRASHED && trial.attempts() >= 3) continue;
    // A second run of one that had finished is only right if its result had not been stored.
    EXPECT_GE(finished[trial.name()], 1) << trial.name();
    EXPECT_LE(finished[trial.name()], trial.attempts()) << trial.name();
  }
  daemon.Signal(SIGTERM);
  ASSERT_TRUE(daemon.WaitFor(60).has_value());
  auto database = Database::Open(dir_.path() + "/hbmtune.db");
  ASSERT_TRUE(database.ok()) << database.status();
  auto verdict = (*database)->Query("PRAGMA integrity_check");
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_EQ(verdict->front().Text("integrity_check"), "ok");
}

TEST_F(ProcessTest, APrivateDaemonLeavesAfterItsLastClient) {
  DaemonProcess daemon(PrivateFlags());
  {
    v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
    Create(tuning, Request("slow"));
    WaitForJournal("started", 1);
    EXPECT_FALSE(daemon.WaitFor(2).has_value()) << "it left a client alone";
  }
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value()) << "it stays without a client";
  EXPECT_EQ(WEXITSTATUS(*status), 0);
  EXPECT_THAT(JournalLines("finished").back(), HasSubstr("CANCELLED"));
}

TEST_F(ProcessTest, APrivateDaemonFinishesADetachedStudy) {
  DaemonProcess daemon(PrivateFlags());
  v1::CreateStudyRequest request = Request("plain");
  request.set_detached(true);
  {
    v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
    Create(tuning, request);
  }
  auto status = daemon.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 0);
  for (const std::string& line : JournalLines("finished")) {
    EXPECT_THAT(line, ::testing::Not(HasSubstr("CANCELLED")));
  }
  EXPECT_GT(JournalLines("finished").size(), 2U);
}

TEST_F(ProcessTest, PrivateDaemonsThatStartAtOnceAreOne) {
  DaemonProcess first(PrivateFlags());
  auto keep = testing::ConnectTo(socket_);
  keep->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(60));
  DaemonProcess second(PrivateFlags());
  EXPECT_EQ(second.note(), "ready " + socket_ + "\n");
  auto status = second.WaitFor(60);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 0);
  EXPECT_FALSE(first.WaitFor(0).has_value());
}

TEST_F(ProcessTest, ServesMetricsThatPrometheusAccepts) {
  std::vector<std::string> flags = Flags();
  flags[5] = "127.0.0.1:0";
  DaemonProcess daemon(flags);
  const std::string address = daemon.http_address();
  ASSERT_NE(address, "");
  v1::Tuning::Stub tuning(testing::ConnectTo(socket_));
  Watch(tuning, Create(tuning, Request("plain")).name());
  const std::string metrics = testing::HttpGet(address, "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("hbmtune_trials_total{device_kind=\"host\",outcome=\"ok\"}"));
  const std::string file = dir_.path() + "/metrics";
  std::ofstream(file) << metrics;
  EXPECT_EQ(system(("promtool check metrics < " + file).c_str()), 0);
  EXPECT_EQ(testing::HttpGet(address, "/healthz").status, 200);
  EXPECT_EQ(testing::HttpGet(address, "/readyz").status, 200);
  EXPECT_EQ(testing::HttpGet(address, "/metrics/more").status, 404);
  EXPECT_EQ(testing::HttpGet(address, "/etc/passwd").status, 404);
  EXPECT_EQ(testing::HttpRequest(address, "GET /metrics HTTP/1.1", "Host: evil.example").status,
            403);
  EXPECT_EQ(testing::HttpRequest(address, "POST /metrics HTTP/1.1", "Host: " + address).status,
            405);
}

}  // namespace
}  // namespace hbmtune::daemon
