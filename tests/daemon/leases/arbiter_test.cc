#include "daemon/leases/arbiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace hbmtune::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGpu0[] = "0000:03:00.0";
constexpr char kGpu1[] = "0000:04:00.0";

class FakeClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::UnixEpoch() + since_boot; }
  absl::Duration SinceBoot() const override { return since_boot; }
  std::string BootId() const override { return boot_id; }
  absl::Duration since_boot = absl::Seconds(100);
  std::string boot_id = "boot-1";
};

class FakeStore final : public LeaseStore {
 public:
  absl::Status Save(const Lease& lease) override {
    if (full) return absl::ResourceExhaustedError("disk is full");
    leases[lease.job_id] = lease;
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& job_id) override {
    if (full) return absl::ResourceExhaustedError("disk is full");
    leases.erase(job_id);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Lease>> Load() override {
    std::vector<Lease> all;
    for (const auto& [unused, lease] : leases) all.push_back(lease);
    return all;
  }
  std::map<std::string, Lease> leases;
  bool full = false;
};

class Arbiter : public ::testing::Test {
 protected:
  std::unique_ptr<DeviceArbiter> Make(ProbingPolicy policy = ProbingPolicy::kIdle) {
    return std::make_unique<DeviceArbiter>(
        clock_, store_, DeviceArbiter::Options{policy, absl::Seconds(10)},
        [this](const std::string& device) { drained_.push_back(device); });
  }
  FakeClock clock_;
  FakeStore store_;
  std::vector<std::string> drained_;
};

TEST_F(Arbiter, GrantsAllDevicesOrNone) {
  auto arbiter = Make();
  ASSERT_TRUE(arbiter->Acquire("1", {kGpu1}, 0, absl::Hours(1)).ok());
  auto refused = arbiter->Acquire("2", {kGpu0, kGpu1}, 0, absl::Hours(1));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("0000:04:00.0 is leased by job 1"));
  EXPECT_EQ(arbiter->View(kGpu0).leased_by, "");
}

TEST_F(Arbiter, AnswersARepeatedRequestAsTheFirst) {
  auto arbiter = Make();
  ASSERT_TRUE(arbiter->Acquire("1", {kGpu1, kGpu0}, 0, absl::Hours(1)).ok());
  EXPECT_TRUE(arbiter->Acquire("1", {kGpu0, kGpu1, kGpu0}, 0, absl::Hours(1)).ok());
  EXPECT_EQ(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1)).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(arbiter->Leases().size(), 1u);
}

TEST_F(Arbiter, RefusesAnEmptyRequest) {
  auto arbiter = Make();
  EXPECT_EQ(arbiter->Acquire("", {kGpu0}, 0, absl::Hours(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(arbiter->Acquire("1", {}, 0, absl::Hours(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(Arbiter, DrainsARunningProbeAndStartsNoNewOne) {
  auto arbiter = Make();
  auto permit = arbiter->BeginProbe(kGpu0, {});
  ASSERT_TRUE(permit.ok());
  auto answer = arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->state, LeaseState::kDraining);
  EXPECT_THAT(drained_, ElementsAre(kGpu0));
  EXPECT_EQ(arbiter->Wait("1", absl::Now() + absl::Milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  std::thread ends([&] { *permit = DeviceArbiter::Permit(); });
  // The swapped-out permit dies with the temporary: the probe has ended.
  EXPECT_TRUE(arbiter->Wait("1", absl::Now() + absl::Seconds(30)).ok());
  ends.join();
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {}).ok());
}

TEST_F(Arbiter, LetsAJobProbeWhatItHolds) {
  auto arbiter = Make(ProbingPolicy::kAllocation);
  auto refused = arbiter->BeginProbe(kGpu0, {"7", 1000});
  EXPECT_THAT(refused.status().message(), HasSubstr("job 7 holds no lease"));
  EXPECT_TRUE(arbiter->Admit(kGpu0, {"7", 1000}).ok());
  refused = arbiter->BeginProbe(kGpu0, {});
  EXPECT_THAT(refused.status().message(), HasSubstr("only inside a job that holds it"));
  EXPECT_EQ(arbiter->Admit(kGpu0, {}), refused.status());
  ASSERT_TRUE(arbiter->Acquire("7", {kGpu0}, 1000, absl::Hours(1)).ok());
  EXPECT_TRUE(arbiter->BeginProbe(kGpu0, {"7", 1000}).ok());
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {"8", 1000}).ok());
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {"7", 1001}).ok()) << "another user's job";
  EXPECT_TRUE(arbiter->BeginProbe("host", {}).ok());
}

TEST_F(Arbiter, ProbesNothingButModelsWhenProbingIsOff) {
  auto arbiter = Make(ProbingPolicy::kOff);
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {}).ok());
  EXPECT_FALSE(arbiter->BeginProbe("host", {}).ok());
  EXPECT_TRUE(arbiter->BeginProbe("model:mi210", {}).ok());
}

TEST_F(Arbiter, RunsOneProbeADevice) {
  auto arbiter = Make();
  auto first = arbiter->BeginProbe(kGpu0, {});
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {}).ok());
  EXPECT_TRUE(arbiter->BeginProbe(kGpu1, {}).ok());
  { auto gone = std::move(first); }
  EXPECT_TRUE(arbiter->BeginProbe(kGpu0, {}).ok());
}

TEST_F(Arbiter, EndsALeaseAfterTheJobsTimeAndGrace) {
  auto arbiter = Make();
  ASSERT_TRUE(arbiter->Acquire("1", {kGpu0}, 0, absl::Seconds(60)).ok());
  clock_.since_boot += absl::Seconds(69);
  EXPECT_THAT(arbiter->Expire(), IsEmpty());
  ASSERT_TRUE(arbiter->Renew("1", absl::Seconds(60)).ok());
  clock_.since_boot += absl::Seconds(69);
  EXPECT_THAT(arbiter->Expire(), IsEmpty());
  clock_.since_boot += absl::Seconds(1);
  EXPECT_THAT(arbiter->Expire(), ElementsAre("1"));
  EXPECT_TRUE(store_.leases.empty());
  EXPECT_EQ(arbiter->Renew("1", absl::Seconds(60)).code(), absl::StatusCode::kNotFound);
}

TEST_F(Arbiter, ForgivesAReleaseOfNothing) {
  auto arbiter = Make();
  ASSERT_TRUE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1)).ok());
  arbiter->Release("1");
  arbiter->Release("1");
  EXPECT_TRUE(arbiter->Acquire("2", {kGpu0}, 0, absl::Hours(1)).ok());
}

TEST_F(Arbiter, KeepsLeasesOverARestartButNotOverABoot) {
  {
    auto arbiter = Make();
    ASSERT_TRUE(arbiter->Acquire("1", {kGpu0}, 1000, absl::Hours(1)).ok());
  }
  auto again = Make();
  ASSERT_TRUE(again->Restore().ok());
  EXPECT_EQ(again->View(kGpu0).leased_by, "1");
  EXPECT_EQ(again->Leases().at(0).uid, 1000);
  clock_.boot_id = "boot-2";
  auto after_boot = Make();
  ASSERT_TRUE(after_boot->Restore().ok());
  EXPECT_EQ(after_boot->View(kGpu0).leased_by, "");
  EXPECT_TRUE(store_.leases.empty());
}

TEST_F(Arbiter, SaysWhenALeaseCouldNotBeStored) {
  auto arbiter = Make();
  store_.full = true;
  auto answer = arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1));
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->durable);
  EXPECT_FALSE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1))->durable);
  EXPECT_EQ(arbiter->View(kGpu0).leased_by, "1");
  store_.full = false;
  EXPECT_THAT(arbiter->Expire(), IsEmpty());
  EXPECT_TRUE(store_.leases.contains("1"));
  EXPECT_TRUE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1))->durable);
}

TEST_F(Arbiter, StoresTheEndOfALeaseWhenItCan) {
  auto arbiter = Make();
  ASSERT_TRUE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1)).ok());
  store_.full = true;
  arbiter->Release("1");
  EXPECT_EQ(arbiter->View(kGpu0).leased_by, "");
  EXPECT_TRUE(store_.leases.contains("1"));
  store_.full = false;
  arbiter->Expire();
  EXPECT_TRUE(store_.leases.empty());
}

TEST_F(Arbiter, QuiescesAndResumes) {
  auto arbiter = Make();
  auto permit = arbiter->BeginProbe(kGpu0, {});
  arbiter->Quiesce({kGpu0});
  EXPECT_THAT(drained_, ElementsAre(kGpu0));
  { auto gone = std::move(permit); }
  EXPECT_FALSE(arbiter->BeginProbe(kGpu0, {}).ok());
  EXPECT_FALSE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1)).ok());
  arbiter->Resume({kGpu0});
  EXPECT_TRUE(arbiter->BeginProbe(kGpu0, {}).ok());
}

TEST_F(Arbiter, ProbesNoDirtyDevice) {
  auto arbiter = Make();
  arbiter->MarkDirty(kGpu0, "46 GiB are still used 10 s after the last probe");
  EXPECT_THAT(arbiter->BeginProbe(kGpu0, {}).status().message(), HasSubstr("46 GiB"));
  EXPECT_TRUE(arbiter->Acquire("1", {kGpu0}, 0, absl::Hours(1)).ok()) << "a job may know better";
  arbiter->Release("1");
  arbiter->MarkClean(kGpu0);
  EXPECT_TRUE(arbiter->BeginProbe(kGpu0, {}).ok());
}

TEST_F(Arbiter, GivesADeviceToOneOfManyAtOnce) {
  auto arbiter = Make();
  std::atomic<int> granted = 0;
  std::vector<std::thread> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.emplace_back([&, i] {
      granted += arbiter->Acquire(std::to_string(i), {kGpu0, kGpu1}, 0, absl::Hours(1)).ok();
    });
  }
  for (std::thread& job : jobs) job.join();
  EXPECT_EQ(granted, 1);
}

}  // namespace
}  // namespace hbmtune::daemon
