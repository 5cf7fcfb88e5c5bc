#include "daemon/smi/smi_helper.h"

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace hbmtune::daemon {
namespace {

constexpr size_t kLongestAnswer = 1 << 20;  // 64 partitions take 20 KiB

void Drain(int fd) {
  char buffer[4096];
  while (read(fd, buffer, sizeof buffer) > 0) {
  }
}

// Blocks until the child is gone; it was killed before.
void ReapNow(ChildProcess& child) {
  pollfd ended{child.pidfd(), POLLIN, 0};
  while (!child.Reap()) poll(&ended, 1, 100);
}

template <class T>
void Take(const nlohmann::json& json, const char* name, std::optional<T>& value) {
  if (auto found = json.find(name); found != json.end() && found->is_number()) {
    value = found->get<T>();
  }
}

absl::StatusOr<std::vector<SmiSample>> Parse(const std::string& line) {
  auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return absl::InternalError("hbmtune-smi answered with no JSON object");
  if (json.contains("error") && json["error"].is_string()) {
    return absl::FailedPreconditionError(json["error"].get<std::string>());
  }
  std::vector<SmiSample> samples;
  for (const auto& device : json.value("devices", nlohmann::json::array())) {
    if (!device.is_object() || !device.contains("pci_address")) continue;
    if (!device["pci_address"].is_string()) continue;
    SmiSample sample;
    sample.pci_address = device["pci_address"].get<std::string>();
    Take(device, "energy_joules", sample.energy_joules);
    Take(device, "pcie_sent_bytes_per_second", sample.pcie_sent_bytes_per_second);
    Take(device, "pcie_received_bytes_per_second", sample.pcie_received_bytes_per_second);
    Take(device, "retired_pages", sample.retired_pages);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

SmiHelper::SmiHelper(const Clock& clock, Options options)
    : clock_(clock), options_(std::move(options)), pause_(options_.first_pause) {
  signal(SIGPIPE, SIG_IGN);  // a helper that was killed shows as a failed write
}

SmiHelper::~SmiHelper() { Stop(); }

void SmiHelper::Stop() {
  if (!child_) return;
  child_->input().Reset();  // end of file: it shuts the library down, which frees its lock
  pollfd ended{child_->pidfd(), POLLIN, 0};
  if (poll(&ended, 1, 1000) == 0) child_->Signal(SIGKILL);
  ReapNow(*child_);
  child_.reset();
  received_.clear();
}

absl::Status SmiHelper::Start() {
  auto child = ChildProcess::Spawn({options_.program, options_.arguments, -1});
  if (!child.ok()) return child.status();
  child_.emplace(std::move(*child));
  return absl::OkStatus();
}

// The helper rests for a while that doubles with each failure in a row.
absl::Status SmiHelper::Fail(absl::Status status) {
  if (child_) {
    child_->Signal(SIGKILL);
    ReapNow(*child_);
    child_.reset();
  }
  received_.clear();
  resume_at_ = clock_.SinceBoot() + pause_;
  pause_ = std::min(pause_ * 2, options_.longest_pause);
  return status;
}

absl::StatusOr<std::vector<SmiSample>> SmiHelper::Sample() {
  if (clock_.SinceBoot() < resume_at_) {
    return absl::UnavailableError("hbmtune-smi rests after a failure");
  }
  if (!child_) {
    if (auto status = Start(); !status.ok()) return Fail(status);
  }
  auto line = Ask();
  if (!line.ok()) return Fail(line.status());
  auto samples = Parse(*line);
  if (!samples.ok()) return Fail(samples.status());
  pause_ = options_.first_pause;
  return samples;
}

absl::StatusOr<std::string> SmiHelper::Ask() {
  Drain(child_->errors().get());
  constexpr char kRequest[] = "sample\n";
  if (write(child_->input().get(), kRequest, sizeof kRequest - 1) < 0) {
    return absl::AbortedError("hbmtune-smi died");
  }
  const absl::Duration deadline = clock_.SinceBoot() + options_.deadline;
  while (true) {
    if (size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const int64_t left = absl::ToInt64Milliseconds(deadline - clock_.SinceBoot());
    pollfd readable{child_->output().get(), POLLIN, 0};
    if (left <= 0 || poll(&readable, 1, static_cast<int>(left)) == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("hbmtune-smi gave no answer in ", absl::FormatDuration(options_.deadline)));
    }
    char buffer[4096];
    ssize_t count = read(child_->output().get(), buffer, sizeof buffer);
    if (count == 0) return absl::AbortedError("hbmtune-smi died");
    if (count > 0) received_.append(buffer, static_cast<size_t>(count));
    if (received_.size() > kLongestAnswer) {
      return absl::InternalError("hbmtune-smi answered more than 1 MiB");
    }
  }
}

}  // namespace hbmtune::daemon
