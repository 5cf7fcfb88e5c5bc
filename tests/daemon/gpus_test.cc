// Probes on a GPU of a pretended node, through the socket: the fake probe stands for hbmtune-probe,
// files for the driver.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tests/daemon/server_fixture.h"
#include "tests/support/fake_node.h"

namespace hbmtune::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::CardKind;
using testing::FakeNode;

constexpr int64_t kIdleBytes = int64_t{1} << 30;  // what FakeNode's cards use

class GpusTest : public ServerTest {
 protected:
  void SetUp() override {
    node_ = std::make_unique<FakeNode>(dir_.path() + "/sys");
    gpu_ = node_->AddGpu(CardKind::kMi210, 0);
    Start();
  }
  void Configure(Options& options) override { options.probing = policy_; }

  v1::CreateStudyRequest GpuRequest(const std::string& name) {
    v1::CreateStudyRequest request = HostRequest(name);
    request.set_device("hip:0");
    request.clear_ceiling();
    return request;
  }
  v1::Device Gpu() {
    grpc::ClientContext context;
    v1::GetDeviceRequest request;
    request.set_name(gpu_);
    v1::Device device;
    grpc::Status status = devices_->GetDevice(&context, request, &device);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return device;
  }
  void AwaitState(v1::DeviceState state) {
    const absl::Time until = absl::Now() + absl::Seconds(60);
    while (Gpu().state() != state && absl::Now() < until) absl::SleepFor(absl::Milliseconds(20));
    EXPECT_EQ(v1::DeviceState_Name(Gpu().state()), v1::DeviceState_Name(state));
  }
  void AwaitMessage(const std::string& study, const std::string& part) {
    const absl::Time until = absl::Now() + absl::Seconds(60);
    while (Get(study).message().find(part) == std::string::npos && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_THAT(Get(study).message(), HasSubstr(part));
  }
  void AwaitProbes(size_t started) {
    const absl::Time until = absl::Now() + absl::Seconds(60);
    while (JournalLines("started").size() < started && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    EXPECT_GE(JournalLines("started").size(), started);
  }
  void Use(int64_t bytes) {
    node_->Write(FakeNode::DevicePath(0) + "/mem_info_vram_used", std::to_string(bytes));
  }
  grpc::Status Acquire(const std::string& job, std::optional<int64_t> uid = std::nullopt) {
    grpc::ClientContext context;
    v1::AcquireLeaseRequest request;
    request.set_job_id(job);
    request.add_devices("hip:0");
    if (uid) request.set_uid(*uid);
    v1::Lease lease;
    return devices_->AcquireLease(&context, request, &lease);
  }

  ProbingPolicy policy_ = ProbingPolicy::kIdle;
  std::unique_ptr<FakeNode> node_;
  std::string gpu_;
};

class GpusInAllocationTest : public GpusTest {
 protected:
  GpusInAllocationTest() { policy_ = ProbingPolicy::kAllocation; }
};

TEST_F(GpusTest, AProbeSeesItsGpuAloneUnderTheLockOfItsAddress) {
  setenv("HIP_VISIBLE_DEVICES", "7", 1);  // ours is no probe's
  const std::string study = MustCreate(GpuRequest("slow"));
  AwaitProbes(1);
  EXPECT_EQ(Get(study).device(), gpu_) << "hip:0 may be another card after the next boot";
  EXPECT_THAT(JournalLines("sees"),
              ElementsAre("sees " + study + "/trials/1 GPU-1234567890ab0000"));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      LockFile::Acquire(dir_.path() + "/" + gpu_ + ".lock", absl::ZeroDuration()).status()));
  EXPECT_EQ(Gpu().state(), v1::DEVICE_STATE_PROBING);
  Cancel(study);
  AwaitState(v1::DEVICE_STATE_IDLE);
  unsetenv("HIP_VISIBLE_DEVICES");
}

TEST_F(GpusTest, AStudyWaitsWhileAnotherProcessHasMemoryThere) {
  node_->AddProcess(getpid(), 0, int64_t{3} << 30);
  const std::string study = MustCreate(GpuRequest("plain"));
  AwaitMessage(study, "is in use: process " + std::to_string(getpid()));
  EXPECT_TRUE(JournalLines("started").empty());
  EXPECT_EQ(Gpu().state(), v1::DEVICE_STATE_PROBING);  // its study runs, and says what it waits for
  std::filesystem::remove_all(node_->root() + "/class/kfd/kfd/proc/" + std::to_string(getpid()));
  EXPECT_EQ(Watch(study).back().study().state(), v1::STUDY_STATE_SUCCEEDED);
}

TEST_F(GpusTest, StrandedMemoryMakesItDirtyAndItsReturnClean) {
  const std::string study = MustCreate(GpuRequest("slow"));
  AwaitProbes(1);
  Use(kIdleBytes + (int64_t{12} << 30));
  Cancel(study);  // the probe ends, its memory stays
  AwaitState(v1::DEVICE_STATE_DIRTY);
  EXPECT_THAT(Gpu().dirty(), HasSubstr("12.00 GiB were not given back"));
  const std::string next = MustCreate(GpuRequest("plain"));
  AwaitMessage(next, "is dirty");
  EXPECT_EQ(JournalLines("started").size(), 1U);
  Stop();
  Start();  // a restart makes nothing clean
  EXPECT_EQ(Gpu().state(), v1::DEVICE_STATE_DIRTY);
  Use(kIdleBytes);
  server_->Tick();
  EXPECT_EQ(Watch(next).back().study().state(), v1::STUDY_STATE_SUCCEEDED);
}

TEST_F(GpusTest, AnAdminCanSayThatItIsClean) {
  const std::string study = MustCreate(GpuRequest("slow"));
  AwaitProbes(1);
  Use(kIdleBytes + (int64_t{12} << 30));
  Cancel(study);
  AwaitState(v1::DEVICE_STATE_DIRTY);
  grpc::ClientContext context;
  v1::ResumeRequest request;
  request.add_devices(gpu_);
  v1::ResumeResponse response;
  ASSERT_TRUE(devices_->Resume(&context, request, &response).ok());
  EXPECT_EQ(Gpu().state(), v1::DEVICE_STATE_IDLE);
  EXPECT_EQ(Watch(MustCreate(GpuRequest("plain"))).back().study().state(),
            v1::STUDY_STATE_SUCCEEDED);
}

TEST_F(GpusTest, AProbeThatSeesAnotherDeviceIsStoppedAndItsStudyFails) {
  const std::string study = MustCreate(GpuRequest("astray"));
  const v1::Study end = Watch(study).back().study();
  EXPECT_EQ(end.state(), v1::STUDY_STATE_FAILED);
  EXPECT_THAT(end.message(), HasSubstr("was to use " + gpu_ + " and sees 0000:ff:00.0"));
  EXPECT_EQ(JournalLines("started").size(), 1U);
}

TEST_F(GpusInAllocationTest, OnlyTheJobsOwnUserProbesInItsLease) {
  v1::CreateStudyRequest request = GpuRequest("plain");
  v1::Study study;
  const grpc::Status outside = Create(request, &study);
  EXPECT_EQ(outside.error_code(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(InfoOf(outside).reason(), "NOT_ADMITTED");
  EXPECT_THAT(outside.error_message(), HasSubstr("only inside a job that holds it"));
  request.set_job_id("job-1");
  const std::string early = MustCreate(request);
  AwaitMessage(early, "job job-1 holds no lease on " + gpu_);
  Cancel(early);
  ASSERT_TRUE(Acquire("job-1", 12345).ok());  // as a prolog does for its job's user
  const std::string foreign = MustCreate(request);
  AwaitMessage(foreign, "leased by job job-1");
  Cancel(foreign);
  EXPECT_TRUE(JournalLines("started").empty());
  ASSERT_TRUE(Acquire("job-1", 12345).ok());
  grpc::ClientContext context;
  v1::ReleaseLeaseRequest release;
  release.set_job_id("job-1");
  v1::ReleaseLeaseResponse response;
  ASSERT_TRUE(devices_->ReleaseLease(&context, release, &response).ok());
  ASSERT_TRUE(Acquire("job-1").ok());
  const std::string inside = MustCreate(request);
  EXPECT_EQ(Watch(inside).back().study().state(), v1::STUDY_STATE_SUCCEEDED);
  EXPECT_EQ(Get(inside).job_id(), "job-1");
}

TEST_F(GpusTest, WhatCannotBeTunedIsRefused) {
  node_->Write(FakeNode::DevicePath(0) + "/product_name", "Radeon VII");
  auto refusal = [&] {
    Stop();
    Start();
    v1::Study study;
    grpc::Status status = Create(GpuRequest("plain"), &study);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_THAT(refusal(), HasSubstr("no profile of 0000:03:00.0, a Radeon VII"));
  node_->Write(FakeNode::DevicePath(0) + "/product_name", "AMD Instinct MI300X OAM");
  node_->AddPartitions(0, 8, int64_t{24} << 30);
  EXPECT_THAT(refusal(), HasSubstr("only whole GPUs"));
  node_->Write(FakeNode::DevicePath(0) + "/current_compute_partition", "SPX");
  std::filesystem::remove(node_->root() + "/" + FakeNode::DevicePath(0) + "/unique_id");
  EXPECT_THAT(refusal(), HasSubstr("no unique_id"));
}

}  // namespace
}  // namespace hbmtune::daemon
