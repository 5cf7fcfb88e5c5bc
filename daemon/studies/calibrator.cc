#include "daemon/studies/calibrator.h"

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "daemon/base/unique_fd.h"
#include "kernels/device/profile.h"

namespace hbmtune::daemon {
namespace {

constexpr char kDevice[] = "host";
// Beside the products a calibration measures what takes a minute on two busy cores.
constexpr absl::Duration kRest = absl::Minutes(15);

absl::Status WriteSynced(const std::string& path, const std::string& text) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const bool whole =
      file.valid() &&
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.get()) == 0;
  return whole ? absl::OkStatus()
               : absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace

Calibrator::~Calibrator() {
  Stop();
  std::thread last;
  {
    absl::MutexLock lock(&mutex_);
    last.swap(thread_);
  }
  if (last.joinable()) last.join();
}

absl::Status Calibrator::Start(const Request& request, std::shared_ptr<Cancellation> cancellation,
                               Listener listener) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("the daemon is leaving");
  if (running_ != nullptr) return absl::FailedPreconditionError("host is calibrated already");
  auto permit = parts_.arbiter.BeginProbe(kDevice, {"", request.uid});
  if (!permit.ok()) return permit.status();
  if (thread_.joinable()) thread_.join();  // of an earlier one, which has told its end
  running_ = cancellation;
  interrupted_.clear();
  thread_ = std::thread([this, request, cancellation, listener = std::move(listener),
                         permit = *std::move(permit)]() mutable {
    absl::StatusOr<std::string> profile = Measure(request, *cancellation, listener);
    permit = {};
    parts_.node.give_back(kDevice);
    if (absl::IsCancelled(profile.status())) {
      if (absl::Status why = WhyInterrupted(); !why.ok()) profile = why;
    }
    parts_.log.Info("calibration ends", {{"status", profile.status().ToString()}});
    {
      absl::MutexLock lock(&mutex_);
      running_ = nullptr;
    }
    listener.done(profile);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> Calibrator::Measure(const Request& request,
                                                const Cancellation& cancellation,
                                                const Listener& listener) const {
  ProbeTask task;
  task.trial = "calibration";
  task.device = kDevice;
  task.calibration_seconds = request.budget_seconds;
  task.threads = request.threads;
  task.deadline = absl::Seconds(request.budget_seconds) + kRest;
  absl::Status held = parts_.node.take(kDevice, task.deadline + absl::Minutes(1));
  if (!held.ok()) return held;
  parts_.log.Info("calibration starts", {{"uid", request.uid}});
  std::string profile_toml;
  ProbeObserver observer;
  observer.calibrating = listener.progress;
  observer.calibrated = [&](const std::string& text) { profile_toml = text; };
  auto measurement = parts_.prober.Run(task, cancellation, observer);
  if (!measurement.ok()) return measurement.status();
  if (measurement->outcome == Outcome::kCancelled) return absl::CancelledError("cancelled");
  if (measurement->outcome != Outcome::kOk || profile_toml.empty()) {
    return absl::InternalError(absl::StrCat("the calibration failed: ", measurement->message));
  }
  if (absl::Status status = Keep(profile_toml); !status.ok()) return status;
  return profile_toml;
}

// Whole or not at all: an estimate may read it at any time.
absl::Status Calibrator::Keep(const std::string& profile_toml) const {
  if (auto read = device::ParseProfile(profile_toml); !read.ok()) {
    return absl::InternalError(
        absl::StrCat("the probe's profile is none: ", std::string(read.status().message())));
  }
  const std::string path = absl::StrCat(parts_.profile_directory, "/", kDevice, ".toml");
  const std::string part = path + ".part";
  std::error_code error;
  std::filesystem::create_directories(parts_.profile_directory, error);
  if (absl::Status status = WriteSynced(part, profile_toml); !status.ok()) return status;
  if (std::rename(part.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

void Calibrator::Interrupt(const std::string& why) {
  if (running_ == nullptr) return;
  if (interrupted_.empty()) interrupted_ = why;
  running_->Cancel();
}

absl::Status Calibrator::WhyInterrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_.empty() ? absl::OkStatus() : absl::AbortedError(interrupted_);
}

void Calibrator::InterruptOn(const std::string& device) {
  absl::MutexLock lock(&mutex_);
  if (device == kDevice) Interrupt("the calibration was stopped: the device is needed");
}

void Calibrator::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  Interrupt("the calibration was stopped: the daemon leaves");
}

}  // namespace hbmtune::daemon
