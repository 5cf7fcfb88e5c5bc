// Leases, quiesce, roles and the status page, through the socket.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/base/errors.h"
#include "daemon/services/access.h"
#include "daemon/services/status.h"
#include "tests/daemon/server_fixture.h"
#include "tests/support/fake_node.h"
#include "tests/support/http_get.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;

class DevicesTest : public ServerTest {
 protected:
  grpc::Status Acquire(const std::string& job, const std::string& device, v1::Lease* lease,
                       double remaining_seconds = 0) {
    grpc::ClientContext context;
    v1::AcquireLeaseRequest request;
    request.set_job_id(job);
    request.add_devices(device);
    request.set_remaining_seconds(remaining_seconds);
    return devices_->AcquireLease(&context, request, lease);
  }
  grpc::Status Wait(const std::string& job, int milliseconds) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(milliseconds));
    v1::WaitLeaseRequest request;
    request.set_job_id(job);
    v1::Lease lease;
    return devices_->WaitLease(&context, request, &lease);
  }
  void Release(const std::string& job) {
    grpc::ClientContext context;
    v1::ReleaseLeaseRequest request;
    request.set_job_id(job);
    v1::ReleaseLeaseResponse response;
    EXPECT_TRUE(devices_->ReleaseLease(&context, request, &response).ok());
  }
  v1::Device Host() {
    grpc::ClientContext context;
    v1::GetDeviceRequest request;
    request.set_name("host");
    v1::Device device;
    EXPECT_TRUE(devices_->GetDevice(&context, request, &device).ok());
    return device;
  }
};

TEST_F(DevicesTest, ALeaseStopsTheProbeAndTheStudyGoesOnAfterIt) {
  const std::string study = MustCreate(HostRequest("slow"));
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  v1::Lease lease;
  grpc::Status status = Acquire("job-1", "host", &lease);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(lease.state(), v1::LEASE_STATE_DRAINING);
  EXPECT_TRUE(lease.durable());
  EXPECT_TRUE(Wait("job-1", 5000).ok());
  EXPECT_EQ(JournalLines("finished").size(), 1U);
  EXPECT_EQ(Host().state(), v1::DEVICE_STATE_LEASED);
  EXPECT_EQ(Host().leased_by(), "job-1");
  // The study waits and says why.
  while (Get(study).message().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_THAT(Get(study).message(), HasSubstr("leased by job job-1"));
  EXPECT_EQ(JournalLines("started").size(), 1U);
  Release("job-1");
  Release("job-1");  // an epilog may run twice
  while (JournalLines("started").size() < 2) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(Cancel(study).state(), v1::STUDY_STATE_CANCELLED);
}

TEST_F(DevicesTest, ALeaseIsExclusiveIdempotentAndSurvivesARestart) {
  v1::Lease lease;
  ASSERT_TRUE(Acquire("job-1", "host", &lease).ok());
  EXPECT_EQ(lease.state(), v1::LEASE_STATE_GRANTED);
  EXPECT_TRUE(Acquire("job-1", "host", &lease).ok());
  EXPECT_EQ(Acquire("job-2", "host", &lease).error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(Acquire("job-1", "model:mi210", &lease).error_code(), grpc::ALREADY_EXISTS);
  Stop();
  Start();
  EXPECT_EQ(Host().leased_by(), "job-1");
  EXPECT_EQ(Acquire("job-2", "host", &lease).error_code(), grpc::FAILED_PRECONDITION);
  Release("job-1");
  EXPECT_TRUE(Acquire("job-2", "host", &lease).ok());
}

TEST_F(DevicesTest, WaitingHasADeadlineAndNeedsALease) {
  EXPECT_EQ(Wait("nobody", 1000).error_code(), grpc::NOT_FOUND);
  v1::CreateStudyRequest request = HostRequest("deaf");  // takes seconds to stop
  MustCreate(request);
  while (JournalLines("started").empty()) absl::SleepFor(absl::Milliseconds(20));
  v1::Lease lease;
  ASSERT_TRUE(Acquire("job-1", "host", &lease).ok());
  EXPECT_EQ(lease.state(), v1::LEASE_STATE_DRAINING);
  EXPECT_EQ(Wait("job-1", 200).error_code(), grpc::DEADLINE_EXCEEDED);
}

TEST_F(DevicesTest, QuiesceSetsADeviceAside) {
  v1::QuiesceRequest request;
  request.add_devices("host");
  {
    grpc::ClientContext context;
    v1::QuiesceResponse response;
    ASSERT_TRUE(devices_->Quiesce(&context, request, &response).ok());
  }
  EXPECT_EQ(Host().state(), v1::DEVICE_STATE_QUIESCED);
  const std::string study = MustCreate(HostRequest("plain"));
  while (Get(study).message().empty()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(JournalLines("started").empty());
  {
    grpc::ClientContext context;
    v1::ResumeRequest resume;
    resume.add_devices("host");
    v1::ResumeResponse response;
    ASSERT_TRUE(devices_->Resume(&context, resume, &response).ok());
  }
  EXPECT_EQ(Watch(study).back().study().state(), v1::STUDY_STATE_SUCCEEDED);
}

TEST_F(DevicesTest, ClientsCanRunTheTrialsThemselves) {
  v1::CreateStudyRequest create = HostRequest("plain");
  create.set_client_probes(true);
  create.set_max_trials(3);
  const std::string study = MustCreate(create);
  v1::SuggestTrialRequest suggest;
  suggest.set_study(study);
  suggest.set_prober("me");
  auto next = [&](v1::SuggestTrialResponse* response) {
    response->Clear();
    grpc::ClientContext context;
    return tuning_->SuggestTrial(&context, suggest, response);
  };
  v1::SuggestTrialResponse response;
  while (next(&response).error_code() == grpc::FAILED_PRECONDITION) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  ASSERT_TRUE(response.has_trial());
  const std::string first = response.trial().name();
  ASSERT_TRUE(next(&response).ok());
  EXPECT_EQ(response.trial().name(), first) << "a prober has one trial at a time";
  for (int i = 0; response.has_trial() && i < 10; ++i) {
    {
      grpc::ClientContext context;
      v1::ReportProgressRequest progress;
      progress.mutable_progress()->set_trial(response.trial().name());
      progress.set_prober("me");
      v1::ReportProgressResponse answer;
      EXPECT_TRUE(tuning_->ReportProgress(&context, progress, &answer).ok());
      EXPECT_FALSE(answer.stop());
    }
    v1::CompleteTrialRequest complete;
    complete.set_trial(response.trial().name());
    complete.set_prober("somebody else");
    complete.mutable_measurement()->set_outcome(v1::OUTCOME_OK);
    complete.mutable_measurement()->set_tokens_per_second(100 + i);
    complete.mutable_measurement()->set_peak_used_bytes(1000);
    v1::Trial trial;
    {
      grpc::ClientContext context;
      EXPECT_EQ(tuning_->CompleteTrial(&context, complete, &trial).error_code(), grpc::NOT_FOUND);
    }
    complete.set_prober("me");
    for (int repeat = 0; repeat < 2; ++repeat) {
      grpc::ClientContext context;
      EXPECT_TRUE(tuning_->CompleteTrial(&context, complete, &trial).ok());
      EXPECT_EQ(trial.state(), v1::TRIAL_STATE_FINISHED);
    }
    ASSERT_TRUE(next(&response).ok());
  }
  EXPECT_NE(response.over(), "");
  v1::Study ended = Watch(study).back().study();
  EXPECT_EQ(ended.state(), v1::STUDY_STATE_SUCCEEDED);
  EXPECT_EQ(ended.progress().finished_trials(), 3);
  EXPECT_TRUE(JournalLines("started").empty()) << "the daemon must start no probe";
}

TEST_F(DevicesTest, ALeaseStopsTrialsThatClientsRun) {
  v1::CreateStudyRequest create = HostRequest("plain");
  create.set_client_probes(true);
  const std::string study = MustCreate(create);
  v1::SuggestTrialRequest suggest;
  suggest.set_study(study);
  v1::SuggestTrialResponse response;
  auto next = [&](const std::string& prober) {
    response.Clear();
    suggest.set_prober(prober);
    grpc::ClientContext context;
    return tuning_->SuggestTrial(&context, suggest, &response);
  };
  while (!next("me").ok()) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_TRUE(response.has_trial());
  v1::CompleteTrialRequest complete;
  complete.set_trial(response.trial().name());
  complete.set_prober("me");
  complete.mutable_measurement()->set_outcome(v1::OUTCOME_CANCELLED);
  EXPECT_EQ(Host().state(), v1::DEVICE_STATE_PROBING);

  v1::Lease lease;
  ASSERT_TRUE(Acquire("job-1", "host", &lease).ok());
  EXPECT_EQ(lease.state(), v1::LEASE_STATE_DRAINING);
  ASSERT_TRUE(next("another").ok());
  EXPECT_FALSE(response.has_trial());
  EXPECT_GT(response.retry_seconds(), 0);
  {
    grpc::ClientContext context;
    v1::ReportProgressRequest progress;
    progress.mutable_progress()->set_trial(complete.trial());
    progress.set_prober("me");
    v1::ReportProgressResponse answer;
    ASSERT_TRUE(tuning_->ReportProgress(&context, progress, &answer).ok());
    EXPECT_TRUE(answer.stop());
  }
  EXPECT_EQ(Wait("job-1", 200).error_code(), grpc::DEADLINE_EXCEEDED);
  {
    grpc::ClientContext context;
    v1::Trial trial;
    ASSERT_TRUE(tuning_->CompleteTrial(&context, complete, &trial).ok());
  }
  EXPECT_TRUE(Wait("job-1", 5000).ok());
  ASSERT_TRUE(next("me").ok());
  EXPECT_FALSE(response.has_trial());
  EXPECT_THAT(Get(study).message(), HasSubstr("leased by job job-1"));
  Release("job-1");
  ASSERT_TRUE(next("me").ok());
  EXPECT_TRUE(response.has_trial());
  EXPECT_EQ(Get(study).message(), "");
}

// Every method of every service has its line in the table, and the table no other.
TEST(Access, HasARoleForEveryMethod) {
  int methods = 0;
  for (const auto* service : {v1::CreateStudyRequest::descriptor()->file()->service(0),
                              v1::Device::descriptor()->file()->service(0)}) {
    for (int i = 0; i < service->method_count(); ++i) {
      EXPECT_NE(RoleFor(service->method(i)->full_name()), Role::kNone)
          << service->method(i)->full_name();
      ++methods;
    }
  }
  EXPECT_EQ(methods, 27);
  EXPECT_EQ(RoleFor("hbmtune.v1.Tuning.DropDatabase"), Role::kNone);
  EXPECT_EQ(RoleFor("hbmtune.v1.Devices.Quiesce"), Role::kAdmin);
}

TEST(Access, GivesRolesByUserAndGroup) {
  Peers peers;
  const SystemClock clock;
  Access access(peers, clock, {"root", "daemon", "", Role::kRead, ""});
  EXPECT_EQ(access.RoleOf({0, 0, 1}), Role::kAdmin);
  EXPECT_EQ(access.RoleOf({64999, 64999, 1}), Role::kRead);
  EXPECT_EQ(access.RoleOf({64998, 0, 1}), Role::kAdmin);  // by the connection's group
  EXPECT_EQ(access.RoleOf({64997, 1, 1}), Role::kTune);   // group daemon has the id 1
}

class StoppedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() + now; }
  absl::Duration SinceBoot() const override { return now; }
  std::string BootId() const override { return "boot"; }

  absl::Duration now;
};

TEST(RateLimit, LetsABurstThroughAndThenTheRate) {
  StoppedClock clock;
  RateLimit limit(clock);
  limit.SetRate(10);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(limit.Take(7), absl::ZeroDuration()) << i;
  EXPECT_EQ(limit.Take(7), absl::Milliseconds(100));
  EXPECT_EQ(limit.Take(8), absl::ZeroDuration()) << "another's bucket is his own";
  clock.now += absl::Milliseconds(50);
  EXPECT_EQ(limit.Take(7), absl::Milliseconds(50));
  clock.now += absl::Milliseconds(50);
  EXPECT_EQ(limit.Take(7), absl::ZeroDuration());
  EXPECT_GT(limit.Take(7), absl::ZeroDuration());
  clock.now += absl::Hours(1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(limit.Take(7), absl::ZeroDuration()) << i;
  EXPECT_GT(limit.Take(7), absl::ZeroDuration()) << "no more than a burst is saved";
}

TEST(RateLimit, TellsWhenToAskAgain) {
  const grpc::Status status = ToGrpc(
      WithRetry(WithReason(absl::ResourceExhaustedError("too often"), "RATE_EXCEEDED"),
                absl::Milliseconds(1250)));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 250'000'000);
}

TEST_F(DevicesTest, TheStatusPageShowsStudiesAndNoUsers) {
  Watch(MustCreate(HostRequest("plain")));
  auto page = testing::HttpGet(HttpAddress(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, HasSubstr("status.json"));
  auto reply = testing::HttpGet(HttpAddress(), "/status.json");
  ASSERT_EQ(reply.status, 200);
  auto status = nlohmann::json::parse(reply.body);
  EXPECT_EQ(status["devices"][0]["name"], "host");
  EXPECT_EQ(status["studies"][0]["name"], "studies/1");
  EXPECT_EQ(status["studies"][0]["state"], "SUCCEEDED");
  EXPECT_GT(status["studies"][0]["done_ratio"], 0);
  EXPECT_GT(status["studies"][0]["ceiling_bytes"], 0);
  EXPECT_GT(status["studies"][0]["trials"].size(), 2U);
  int fitting = 0;
  for (const auto& trial : status["studies"][0]["trials"]) {
    if (!trial["fits"]) continue;
    ++fitting;
    EXPECT_GT(trial["peak_used_bytes"], 0);
    EXPECT_GT(trial["tokens_per_second"], 0);
  }
  EXPECT_GT(fitting, 0);
  EXPECT_EQ(reply.body.find("uid"), std::string::npos);
}

TEST_F(DevicesTest, ShowsTheGpusOfTheNode) {
  Stop();
  testing::FakeNode node(dir_.path() + "/sys");
  const std::string address = node.AddGpu(testing::CardKind::kMi210, 0);
  Start();
  v1::GetDeviceRequest request;
  request.set_name("hip:0");
  v1::Device device;
  auto get = [&] {
    grpc::ClientContext context;
    return devices_->GetDevice(&context, request, &device);
  };
  while (!get().ok()) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(device.name(), address);
  EXPECT_EQ(device.kind(), v1::DEVICE_KIND_GPU);
  EXPECT_GT(device.memory_bytes(), 0);
  const std::string metrics = testing::HttpGet(HttpAddress(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("hbmtune_gpu_memory_total_bytes{"));
  EXPECT_THAT(metrics, HasSubstr("pci_bus_id=\"" + address + "\""));
  const std::string file = dir_.path() + "/metrics";
  std::ofstream(file) << metrics;
  EXPECT_EQ(system(("promtool check metrics < " + file).c_str()), 0);
}

}  // namespace
}  // namespace hbmtune::daemon
