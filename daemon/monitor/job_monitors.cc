#include "daemon/monitor/job_monitors.h"

#include <absl/strings/str_cat.h>

#include "daemon/base/errors.h"

namespace hbmtune::daemon {
namespace {

struct CheckNotNegative {
  absl::Status& status;
  void operator()(const Field& field, const int64_t& value) const {
    if (value >= 0 || !status.ok()) return;
    status = FieldError(absl::StrCat("report.", std::string(field.name)),
                        absl::StrCat(std::string(field.name), " is ", value, ": less than 0"));
  }
};

absl::Status Check(const AllocatorReport& report) {
  absl::Status status;
  AllocatorReport::Visit(report, CheckNotNegative{status});
  if (!status.ok()) return status;
  if (report.active_bytes > report.reserved_bytes) {
    return FieldError("report.active_bytes",
                      absl::StrCat("active_bytes is ", report.active_bytes,
                                   ", more than the reserved ", report.reserved_bytes));
  }
  if (report.allocated_bytes > report.active_bytes) {
    return FieldError("report.allocated_bytes",
                      absl::StrCat("allocated_bytes is ", report.allocated_bytes,
                                   ", more than the active ", report.active_bytes));
  }
  return absl::OkStatus();
}

bool IsOf(const std::string& device, const std::string& wanted) {
  return wanted.empty() || device == wanted;
}

}  // namespace

absl::StatusOr<JobMonitors::Watched*> JobMonitors::Find(const Key& key, int64_t uid) {
  const absl::Duration now = clock_.SinceBoot();
  auto found = jobs_.find(key);
  if (found == jobs_.end() || now - found->second.reported > kSilence) {
    std::erase_if(jobs_, [&](const auto& job) { return now - job.second.reported > kSilence; });
    if (jobs_.size() >= kJobs) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kJobs, " jobs report already: one is forgotten after ten silent minutes"));
    }
    found = jobs_.try_emplace(key).first;
    found->second.uid = uid;
  }
  if (found->second.uid != uid) {
    return WithReason(absl::PermissionDeniedError(
                          absl::StrCat("job ", key.second, " on ", key.first,
                                       " is another user's")),
                      "NOT_OWNER");
  }
  found->second.reported = now;
  return &found->second;
}

absl::StatusOr<std::vector<Finding>> JobMonitors::Report(const std::string& device,
                                                         const std::string& job_id, int64_t uid,
                                                         const AllocatorReport& report) {
  if (absl::Status status = Check(report); !status.ok()) return status;
  const DriverMemory driver = driver_(device);
  std::vector<Finding> findings;
  std::vector<JobFinding> news;
  {
    absl::MutexLock lock(&mutex_);
    auto watched = Find({device, job_id}, uid);
    if (!watched.ok()) return watched.status();
    (*watched)->report = report;
    findings = (*watched)->monitor.Add(report, driver.used_bytes, driver.total_bytes);
    for (const Finding& finding : findings) {
      ++counts_[static_cast<size_t>(finding.kind)];
      news.push_back({++last_sequence_, device, job_id, finding});
      findings_.push_back(news.back());
      if (findings_.size() > kFindings) findings_.pop_front();
    }
  }
  for (const JobFinding& finding : news) listener_(finding);
  return findings;
}

std::vector<JobMemory> JobMonitors::Jobs(const std::string& device) const {
  const absl::Duration now = clock_.SinceBoot();
  std::vector<JobMemory> jobs;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, watched] : jobs_) {
    if (!IsOf(key.first, device) || now - watched.reported > kSilence) continue;
    jobs.push_back({key.first, key.second, watched.report, watched.monitor.state()});
  }
  return jobs;
}

std::vector<JobFinding> JobMonitors::FindingsSince(int64_t sequence,
                                                   const std::string& device) const {
  std::vector<JobFinding> findings;
  absl::MutexLock lock(&mutex_);
  for (const JobFinding& finding : findings_) {
    if (finding.sequence > sequence && IsOf(finding.device, device)) findings.push_back(finding);
  }
  return findings;
}

JobMonitors::Counts JobMonitors::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace hbmtune::daemon
