#include "client/watch_device.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>

#include "client/interrupt.h"
#include "client/output.h"
#include "client/prose.h"
#include "client/screen.h"
#include "client/text.h"
#include "kernels/core/json.h"
#include "kernels/core/units.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

// RFC 3339 in UTC, to the millisecond.
std::string TimeText(const google::protobuf::Timestamp& time) {
  const std::time_t seconds = static_cast<std::time_t>(time.seconds());
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%03dZ", date, time.nanos() / 1'000'000);
  return text;
}

// A job's name is its user's own text.
std::string CsvCell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string RatioText(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", ratio);
  return text;
}

std::string JobCells(const v1::JobMemory& job) {
  const v1::AllocatorReport& report = job.report();
  std::string cells = CsvCell(job.job_id());
  for (int64_t number : {report.step(), report.allocated_bytes(), report.active_bytes(),
                         report.reserved_bytes()}) {
    cells += "," + std::to_string(number);
  }
  const v1::MemoryState& state = job.state();
  cells += "," + RatioText(state.fragmentation_ratio()) + ",";
  if (state.has_outside_allocator_bytes()) {
    cells += std::to_string(state.outside_allocator_bytes());
  }
  cells += ",";
  if (state.has_safe_allocation_bytes()) cells += std::to_string(state.safe_allocation_bytes());
  return cells;
}

void PrintText(const v1::MemorySample& sample) {
  std::string line = TimeText(sample.sample_time()) + "  " + sample.device();
  if (sample.has_used_bytes()) line += "  used " + FormatBytes(sample.used_bytes());
  if (sample.has_total_bytes()) line += " of " + FormatBytes(sample.total_bytes());
  for (const v1::JobMemory& job : sample.jobs()) {
    line += "  job " + job.job_id() + ": step " + std::to_string(job.report().step()) + ", " +
            FormatBytes(job.report().allocated_bytes()) + " allocated, " +
            FormatBytes(job.report().reserved_bytes()) + " reserved";
  }
  Terminal terminal(stdout);
  PrintProse(terminal, Harmless(line), "", "  ", kNoLimit);
  for (const v1::JobFinding& found : sample.findings()) {
    PrintProse(terminal,
               Harmless("job " + found.job_id() + ": " + found.finding().message() + "; " +
                        found.finding().advice()),
               "  ", "    ", kNoLimit);
  }
}

Json ToJsonOf(const v1::MemorySample& sample) {
  Json json = {{"time", TimeText(sample.sample_time())}, {"device", sample.device()}};
  if (sample.has_used_bytes()) json["used_bytes"] = sample.used_bytes();
  if (sample.has_total_bytes()) json["total_bytes"] = sample.total_bytes();
  json["jobs"] = Json::array();
  for (const v1::JobMemory& job : sample.jobs()) {
    Json told = {{"job_id", job.job_id()},
                 {"step", job.report().step()},
                 {"allocated_bytes", job.report().allocated_bytes()},
                 {"active_bytes", job.report().active_bytes()},
                 {"reserved_bytes", job.report().reserved_bytes()},
                 {"fragmentation_ratio", job.state().fragmentation_ratio()}};
    json["jobs"].push_back(std::move(told));
  }
  json["findings"] = Json::array();
  for (const v1::JobFinding& found : sample.findings()) {
    json["findings"].push_back({{"job_id", found.job_id()},
                                {"step", found.finding().step()},
                                {"message", found.finding().message()},
                                {"advice", found.finding().advice()}});
  }
  json["missed"] = sample.missed();
  return json;
}

void Print(const v1::MemorySample& sample, SampleFormat format) {
  switch (format) {
    case SampleFormat::kText:
      return PrintText(sample);
    case SampleFormat::kJson:
      return WriteOut(stdout, ToJsonOf(sample).dump() + "\n");
    case SampleFormat::kCsv:
      for (const std::string& line : CsvLines(sample)) WriteOut(stdout, line + "\n");
  }
}

}  // namespace

std::string CsvTitle() {
  return "time,device,used_bytes,total_bytes,job_id,step,allocated_bytes,active_bytes,"
         "reserved_bytes,fragmentation_ratio,outside_allocator_bytes,safe_allocation_bytes";
}

std::vector<std::string> CsvLines(const v1::MemorySample& sample) {
  std::string start = TimeText(sample.sample_time()) + "," + CsvCell(sample.device()) + ",";
  if (sample.has_used_bytes()) start += std::to_string(sample.used_bytes());
  start += ",";
  if (sample.has_total_bytes()) start += std::to_string(sample.total_bytes());
  std::vector<std::string> lines;
  for (const v1::JobMemory& job : sample.jobs()) lines.push_back(start + "," + JobCells(job));
  if (lines.empty()) lines.push_back(start + ",,,,,,,,");
  return lines;
}

absl::StatusOr<ExitCode> WatchDevice(const Connection& connection,
                                     const WatchDeviceOptions& options) {
  LeaveOnInterrupt();
  grpc::ClientContext context;
  v1::WatchMemoryRequest request;
  request.set_device(options.device);
  request.set_period_seconds(options.period_seconds);
  auto stream = connection.devices().WatchMemory(&context, request);
  if (options.format == SampleFormat::kCsv) WriteOut(stdout, CsvTitle() + "\n");
  v1::MemorySample sample;
  int64_t samples = 0;
  while (stream->Read(&sample)) {
    Print(sample, options.format);
    if (absl::Status status = OutputStatus(); !status.ok()) return status;
    if (++samples != options.most_samples) continue;
    context.TryCancel();
    return kDone;
  }
  grpc::Status status = stream->Finish();
  if (!status.ok()) return FromGrpc(status);
  return kDone;
}

}  // namespace hbmtune::client
