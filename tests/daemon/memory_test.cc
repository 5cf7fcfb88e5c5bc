// ReportAllocator and WatchMemory, and where their findings show, through the socket.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/core/units.h"
#include "tests/daemon/server_fixture.h"
#include "tests/support/fake_node.h"
#include "tests/support/http_get.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kFloorBytes = 10 * kGiB;

v1::ReportAllocatorRequest RequestOf(const std::string& device, const std::string& job,
                                     int64_t step, int64_t allocated_bytes) {
  v1::ReportAllocatorRequest request;
  request.set_device(device);
  request.set_job_id(job);
  v1::AllocatorReport& report = *request.mutable_report();
  report.set_step(step);
  report.set_allocated_bytes(allocated_bytes);
  report.set_active_bytes(allocated_bytes);
  report.set_reserved_bytes(allocated_bytes + 256 * kMiB);
  return request;
}

// Names device and job in the first message only, as a job would.
std::vector<v1::ReportAllocatorRequest> Steps(const std::string& device, const std::string& job,
                                              int count, double growth_ratio) {
  std::vector<v1::ReportAllocatorRequest> requests;
  for (int step = 1; step <= count; ++step) {
    const auto bytes = static_cast<int64_t>(kFloorBytes * (1 + growth_ratio * step));
    requests.push_back(
        RequestOf(step == 1 ? device : "", step == 1 ? job : "", step, bytes));
  }
  return requests;
}

class MemoryTest : public ServerTest {
 protected:
  using Stream = std::unique_ptr<grpc::ClientReader<v1::MemorySample>>;

  grpc::Status Report(const std::vector<v1::ReportAllocatorRequest>& requests,
                      v1::ReportAllocatorResponse* response) {
    grpc::ClientContext context;
    auto stream = devices_->ReportAllocator(&context, response);
    for (const auto& request : requests) {
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
    return stream->Finish();
  }
  grpc::Status Report(const v1::ReportAllocatorRequest& request) {
    v1::ReportAllocatorResponse response;
    return Report(std::vector{request}, &response);
  }
  Stream Watch(grpc::ClientContext* context, const std::string& device, double period_seconds) {
    v1::WatchMemoryRequest request;
    request.set_device(device);
    request.set_period_seconds(period_seconds);
    return devices_->WatchMemory(context, request);
  }
  grpc::Status WatchStatus(const std::string& device, double period_seconds) {
    grpc::ClientContext context;
    auto stream = Watch(&context, device, period_seconds);
    v1::MemorySample sample;
    while (stream->Read(&sample)) context.TryCancel();
    return stream->Finish();
  }
};

TEST_F(MemoryTest, APlantedLeakIsFoundAndShownEverywhere) {
  grpc::ClientContext context;
  // An hour's period: only a finding can bring the second sample.
  auto stream = Watch(&context, "host", 3600);
  v1::MemorySample sample;
  ASSERT_TRUE(stream->Read(&sample));
  EXPECT_EQ(sample.device(), "host");
  EXPECT_GT(sample.sample_time().seconds(), 0);
  EXPECT_EQ(sample.findings_size(), 0);

  v1::ReportAllocatorResponse response;
  ASSERT_TRUE(Report(Steps("host", "job-7", 200, 0.001), &response).ok());
  EXPECT_EQ(response.reports(), 200);
  ASSERT_EQ(response.findings_size(), 1);
  EXPECT_EQ(response.findings(0).kind(), v1::FINDING_KIND_LEAK);
  EXPECT_LE(response.findings(0).step(), 200);

  ASSERT_TRUE(stream->Read(&sample));
  ASSERT_EQ(sample.findings_size(), 1);
  EXPECT_EQ(sample.findings(0).job_id(), "job-7");
  EXPECT_EQ(sample.findings(0).finding().message(), response.findings(0).message());
  ASSERT_EQ(sample.jobs_size(), 1);
  EXPECT_EQ(sample.jobs(0).state().cache_resident_bytes(), 256 * kMiB);
  context.TryCancel();
  stream->Finish();

  const std::string text = testing::HttpGet(HttpAddress(), "/status.json").body;
  const auto status = nlohmann::json::parse(text);
  ASSERT_EQ(status["findings"].size(), 1U);
  EXPECT_EQ(status["findings"][0]["kind"], "leak");
  EXPECT_EQ(status["findings"][0]["device"], "host");
  EXPECT_EQ(status["findings"][0]["message"], response.findings(0).message());
  EXPECT_THAT(text, Not(HasSubstr("job-7")));
}

TEST_F(MemoryTest, AFlatFloorIsNoLeak) {
  v1::ReportAllocatorResponse response;
  ASSERT_TRUE(Report(Steps("host", "job-7", 400, 0), &response).ok());
  EXPECT_EQ(response.reports(), 400);
  EXPECT_EQ(response.findings_size(), 0);
}

TEST_F(MemoryTest, MetricsNameTheJobOnOneSeriesAlone) {
  v1::ReportAllocatorResponse response;
  ASSERT_TRUE(Report(Steps("host", "job-7", 200, 0.001), &response).ok());
  ASSERT_TRUE(Report(RequestOf("host", "job-8", 1, kFloorBytes)).ok());
  const std::string metrics = testing::HttpGet(HttpAddress(), "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("hbmtune_findings_total{kind=\"leak\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("hbmtune_findings_total{kind=\"out-of-memory\"} 0\n"));
  EXPECT_THAT(metrics,
              HasSubstr("hbmtune_job_cache_resident_bytes{device=\"host\"} 536870912\n"));
  EXPECT_THAT(metrics, HasSubstr("hbmtune_job_fragmentation_ratio{device=\"host\"} 0.0"));
  std::istringstream lines(metrics);
  int naming = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("job-") == std::string::npos) continue;
    ++naming;
    EXPECT_TRUE(line.starts_with("hbmtune_job_info{device=\"host\"")) << line;
  }
  EXPECT_EQ(naming, 2);
  const std::string file = dir_.path() + "/metrics";
  std::ofstream(file) << metrics;
  EXPECT_EQ(system(("promtool check metrics < " + file).c_str()), 0);
}

TEST_F(MemoryTest, ASlowReaderIsToldAndHoldsNobodyUp) {
  // Samples of some 80 KB: more than a window of 64 KiB takes without a reader. Left alone, gRPC
  // widens it to some MiB after what it measures of the link.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  devices_ = v1::Devices::NewStub(grpc::CreateCustomChannel(
      "unix:" + server_->socket_path(), grpc::InsecureChannelCredentials(), arguments));
  std::vector<v1::ReportAllocatorRequest> requests;
  for (int job = 0; job < 300; ++job) {
    requests.push_back(
        RequestOf("host", std::string(240, 'j') + std::to_string(job), 1, kFloorBytes));
  }
  v1::ReportAllocatorResponse response;
  ASSERT_TRUE(Report(requests, &response).ok());

  grpc::ClientContext slow_context;
  auto slow = Watch(&slow_context, "host", 0.1);
  v1::MemorySample sample;
  ASSERT_TRUE(slow->Read(&sample));
  EXPECT_EQ(sample.jobs_size(), 300);
  grpc::ClientContext quick_context;
  auto quick = Watch(&quick_context, "host", 0.1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(quick->Read(&sample));
  quick_context.TryCancel();
  EXPECT_TRUE(Report(RequestOf("host", "job-9", 1, kFloorBytes)).ok());

  int64_t missed = 0;
  for (int i = 0; i < 20 && missed == 0; ++i) {
    ASSERT_TRUE(slow->Read(&sample));
    missed = sample.missed();
  }
  EXPECT_GT(missed, 0);
  slow_context.TryCancel();
}

TEST_F(MemoryTest, AnUnknownDeviceIsNotFoundWithTheNearest) {
  grpc::Status status = Report(RequestOf("hots", "job-7", 1, kFloorBytes));
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(InfoOf(status).reason(), "UNKNOWN_DEVICE");
  EXPECT_EQ(InfoOf(status).metadata().at("nearest"), "host");
  status = WatchStatus("hots", 1);
  EXPECT_EQ(status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(InfoOf(status).metadata().at("nearest"), "host");
}

TEST_F(MemoryTest, AWrongFieldIsNamed) {
  auto field = [&](const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
    const auto bad = BadRequestOf(status);
    return bad.field_violations_size() == 1 ? bad.field_violations(0).field() : "none";
  };
  EXPECT_EQ(field(Report(RequestOf("", "job-7", 1, 1))), "device");
  EXPECT_EQ(field(Report(RequestOf("host", "", 1, 1))), "job_id");
  EXPECT_EQ(field(Report(RequestOf("host", std::string(257, 'j'), 1, 1))), "job_id");
  EXPECT_EQ(field(Report(RequestOf("model:mi210", "job-7", 1, 1))), "device");
  EXPECT_EQ(field(Report(RequestOf("host", "job-7", -1, 1))), "report.step");
  auto request = RequestOf("host", "job-7", 1, kFloorBytes);
  request.mutable_report()->set_reserved_bytes(1);
  EXPECT_EQ(field(Report(request)), "report.active_bytes");
  request.clear_report();
  EXPECT_EQ(field(Report(request)), "report");
  EXPECT_EQ(field(WatchStatus("host", 0.01)), "period_seconds");
  EXPECT_EQ(field(WatchStatus("host", std::nan(""))), "period_seconds");
}

TEST_F(MemoryTest, AStepThatFallsBackStartsTheWatchAnew) {
  auto requests = Steps("host", "job-7", 150, 0.001);
  // Resumed at step 50 with the floor that it had there: 151 steps do not fill a window, 200 would.
  for (auto& request : Steps("", "", 200, 0.001)) {
    if (request.report().step() >= 50) requests.push_back(request);
  }
  v1::ReportAllocatorResponse response;
  ASSERT_TRUE(Report(requests, &response).ok());
  EXPECT_EQ(response.reports(), 150 + 151);
  EXPECT_EQ(response.findings_size(), 0);
}

TEST_F(MemoryTest, AGpuShowsTheDriversFiguresBesideTheJobs) {
  Stop();
  testing::FakeNode node(dir_.path() + "/sys");
  const std::string address = node.AddGpu(testing::CardKind::kMi210, 0);
  node.Write(testing::FakeNode::DevicePath(0) + "/mem_info_vram_used",
             std::to_string(12 * kGiB));
  Start();
  while (WatchStatus("hip:0", 1).error_code() == grpc::NOT_FOUND) {
    absl::SleepFor(absl::Milliseconds(20));
  }
  ASSERT_TRUE(Report(RequestOf("hip:0", "job-7", 1, kFloorBytes)).ok());
  grpc::ClientContext context;
  auto stream = Watch(&context, "hip:0", 0.1);
  v1::MemorySample sample;
  ASSERT_TRUE(stream->Read(&sample));
  EXPECT_EQ(sample.device(), address);
  EXPECT_EQ(sample.used_bytes(), 12 * kGiB);
  EXPECT_GT(sample.total_bytes(), sample.used_bytes());
  ASSERT_EQ(sample.jobs_size(), 1);
  EXPECT_EQ(sample.jobs(0).report().allocated_bytes(), kFloorBytes);
  EXPECT_EQ(sample.jobs(0).state().outside_allocator_bytes(), 2 * kGiB - 256 * kMiB);
  EXPECT_EQ(sample.jobs(0).state().safe_allocation_bytes(),
            sample.total_bytes() - sample.used_bytes());
  context.TryCancel();
}

TEST_F(MemoryTest, ALeavingDaemonSaysSo) {
  grpc::ClientContext context;
  auto stream = Watch(&context, "host", 3600);
  v1::MemorySample sample;
  ASSERT_TRUE(stream->Read(&sample));
  Stop();
  EXPECT_FALSE(stream->Read(&sample));
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAVAILABLE);
}

}  // namespace
}  // namespace hbmtune::daemon
