#include "daemon/devices/gpu_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "tests/support/fake_node.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;
using testing::CardKind;
using testing::FakeNode;

constexpr int64_t kIdleBytes = int64_t{1} << 30;  // what FakeNode's cards use
constexpr int64_t kPid = 4242;

class FakeLeases final : public LeaseStore {
 public:
  absl::Status Save(const Lease&) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string&) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<Lease>> Load() override { return std::vector<Lease>(); }
};

class FakeBaselines final : public BaselineStore {
 public:
  absl::Status Save(const GpuBaseline& baseline) override {
    rows[baseline.device] = baseline;
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& device) override {
    rows.erase(device);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<GpuBaseline>> Load() override {
    std::vector<GpuBaseline> all;
    for (const auto& [unused, row] : rows) all.push_back(row);
    return all;
  }
  std::map<std::string, GpuBaseline> rows;
};

class GpuGuardTest : public ::testing::Test {
 protected:
  GpuGuardTest() : gpu_(node_.AddGpu(CardKind::kMi210, 0)) { Restart(); }

  // A daemon that comes back: the store is all that is left of the one before.
  void Restart() {
    guard_.reset();
    arbiter_.emplace(clock_, leases_,
                     DeviceArbiter::Options{ProbingPolicy::kIdle, absl::ZeroDuration()},
                     [](const std::string&) {});
    GpuGuard::Limits limits;
    limits.patience = absl::Milliseconds(300);
    guard_.emplace(Sysfs(node_.root()), *arbiter_, baselines_, clock_, log_, limits);
    ASSERT_TRUE(guard_->Restore().ok());
  }
  void Use(int64_t bytes) {
    node_.Write(FakeNode::DevicePath(0) + "/mem_info_vram_used", std::to_string(bytes));
  }
  void EndProcess(int64_t pid) {
    std::filesystem::remove_all(node_.root() + "/class/kfd/kfd/proc/" + std::to_string(pid));
  }
  std::string Dirty() const { return arbiter_->View(gpu_).dirty; }

  FakeNode node_;
  testing::TempDir dir_;
  const std::string gpu_;
  SystemClock clock_;
  Log log_{LogFormat::kLogfmt, LogLevel::kInfo, dir_.path() + "/log"};
  FakeLeases leases_;
  FakeBaselines baselines_;
  std::optional<DeviceArbiter> arbiter_;
  std::optional<GpuGuard> guard_;
};

TEST_F(GpuGuardTest, KeepsProbesFromAGpuThatAnotherProcessUses) {
  node_.AddProcess(getpid(), 0, int64_t{3} << 30);
  absl::Status status = guard_->Check(gpu_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(std::to_string(getpid()) + " (gpu_guard_test) holds 3.00 GiB"));
  EXPECT_EQ(Dirty(), "");
  // One that has only opened the driver harms nobody.
  node_.AddProcess(getpid(), 0, 0);
  EXPECT_TRUE(guard_->Check(gpu_).ok());
}

TEST_F(GpuGuardTest, AProbeThatGivesEverythingBackLeavesItClean) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  Use(kIdleBytes + (int64_t{40} << 30));
  node_.AddProcess(kPid, 0, int64_t{40} << 30);
  // The driver takes a moment.
  std::thread driver([&] {
    absl::SleepFor(absl::Milliseconds(100));
    EndProcess(kPid);
    Use(kIdleBytes + (int64_t{64} << 20));
  });
  guard_->AwaitBaseline(gpu_, kPid);
  driver.join();
  EXPECT_EQ(Dirty(), "");
  EXPECT_TRUE(guard_->Check(gpu_).ok());
}

TEST_F(GpuGuardTest, StrandedMemoryMakesItDirtyUntilItIsBack) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  Use(kIdleBytes + (int64_t{65} << 20));
  guard_->AwaitBaseline(gpu_, kPid);
  EXPECT_THAT(Dirty(), HasSubstr("65.00 MiB were not given back"));
  EXPECT_EQ(guard_->dirty(), 1);
  EXPECT_FALSE(arbiter_->BeginProbe(gpu_, {}).ok());
  guard_->Tick();
  EXPECT_NE(Dirty(), "");
  Use(kIdleBytes);
  guard_->Tick();
  EXPECT_EQ(Dirty(), "");
  EXPECT_EQ(guard_->dirty(), 0);
  EXPECT_TRUE(arbiter_->BeginProbe(gpu_, {}).ok());
}

TEST_F(GpuGuardTest, AProbeThatTheDriverDoesNotLetGoMakesItDirty) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  node_.AddProcess(kPid, 0, 0);
  guard_->AwaitBaseline(gpu_, kPid);
  EXPECT_THAT(Dirty(), HasSubstr("the probe's process 4242"));
  EndProcess(kPid);
  guard_->Tick();
  EXPECT_EQ(Dirty(), "");
}

TEST_F(GpuGuardTest, MemoryOfAJobThatCameAtOnceIsNotTheProbes) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  Use(kIdleBytes + (int64_t{10} << 30));
  node_.AddProcess(kPid + 1, 0, int64_t{10} << 30);
  guard_->AwaitBaseline(gpu_, kPid);
  EXPECT_EQ(Dirty(), "");
}

TEST_F(GpuGuardTest, WhatAProbeStrandedBeforeACrashIsFoundAfterIt) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  Use(kIdleBytes + (int64_t{10} << 30));  // the daemon dies with its probe
  Restart();
  absl::Status status = guard_->Check(gpu_);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11.00 GiB are used, by no process"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1.00 GiB before"));
  EXPECT_NE(Dirty(), "");
  Restart();
  EXPECT_NE(Dirty(), "") << "a restart makes nothing clean";
  Use(kIdleBytes);
  guard_->Tick();
  EXPECT_EQ(Dirty(), "");
}

TEST_F(GpuGuardTest, AnAdminsWordMakesWhatIsUsedNowTheBaseline) {
  ASSERT_TRUE(guard_->Check(gpu_).ok());
  Use(kIdleBytes + (int64_t{10} << 30));
  guard_->AwaitBaseline(gpu_, kPid);
  ASSERT_NE(Dirty(), "");
  guard_->Forget({gpu_, "host"});
  EXPECT_EQ(Dirty(), "");
  EXPECT_TRUE(baselines_.rows.empty());
  EXPECT_TRUE(guard_->Check(gpu_).ok());
  EXPECT_EQ(baselines_.rows[gpu_].used_bytes, kIdleBytes + (int64_t{10} << 30));
}

TEST_F(GpuGuardTest, ABaselineOfAnotherBootSaysNothing) {
  baselines_.rows[gpu_] = {gpu_, "another boot", 0, "dirty then"};
  Restart();
  EXPECT_EQ(Dirty(), "");
  EXPECT_TRUE(guard_->Check(gpu_).ok());
}

TEST_F(GpuGuardTest, AGpuThatHasVanishedOrTellsNothingIsNotProbed) {
  EXPECT_THAT(std::string(guard_->Check("0000:77:00.0").message()), HasSubstr("shows no GPU"));
  node_.Write(FakeNode::DevicePath(0) + "/mem_info_vram_used", "garbage");
  EXPECT_THAT(std::string(guard_->Check(gpu_).message()), HasSubstr("does not tell"));
}

}  // namespace
}  // namespace hbmtune::daemon
