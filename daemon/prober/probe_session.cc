#include "daemon/prober/probe_session.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

// What is kept of a probe's stderr for the sentence about its crash.
constexpr size_t kTailBytes = 600;
// A probe that has reported its result has this long to exit.
constexpr absl::Duration kLinger = absl::Seconds(2);

// Everything that can be read now; false at end of file.
bool ReadAvailable(int fd, std::string& into) {
  std::array<char, 16384> buffer;
  for (;;) {
    ssize_t size = read(fd, buffer.data(), buffer.size());
    if (size > 0) {
      into.append(buffer.data(), static_cast<size_t>(size));
    } else if (size == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

}  // namespace

ProbeSession::ProbeSession(std::unique_ptr<ProbeLink> probe, const ProbeTask& task,
                           const StopLadder::Times& stop, const Clock& clock, const Log& log)
    : probe_(std::move(probe)),
      pid_(probe_->pid()),
      task_(task),
      clock_(clock),
      log_(log),
      deadline_(Now() + task.deadline),
      ladder_(stop) {}

Measurement ProbeSession::Follow(const std::string& request, const Cancellation& cancellation,
                                 const ProbeObserver& observer) {
  observer.started(pid_);
  probe_->Send(request);
  for (;;) {
    Wait(cancellation);
    ReadEvents(observer);
    ReadErrors();
    if (auto end = probe_->Ended()) {
      ReadEvents(observer);
      ReadErrors();
      return Judge(end);
    }
    if (Now() >= deadline_) Begin(Stop::kTimeout);
    if (Now() >= linger_until_) Begin(Stop::kLingering);
    if (cancellation.cancelled()) Begin(Stop::kCancelled);
    if (Climb()) continue;
    lost_ = true;
    return Judge(std::nullopt);
  }
}

void ProbeSession::Begin(Stop reason) {
  if (stop_ != Stop::kNone) return;
  stop_ = reason;
  ladder_.Start(Now());
}

bool ProbeSession::Climb() {
  while (auto action = ladder_.Due(Now())) {
    if (*action == StopLadder::Action::kGiveUp) {
      log_.Error("probe cannot be ended", {{"trial", task_.trial}, {"pid", pid_}});
      return false;
    }
    if (*action != StopLadder::Action::kInterrupt) {
      log_.Warning("probe did not stop", {{"trial", task_.trial}, {"pid", pid_}});
    }
    probe_->Stop(*action);
  }
  return true;
}

void ProbeSession::Wait(const Cancellation& cancellation) {
  absl::Time until = std::min({deadline_, linger_until_, ladder_.Next()});
  if (stop_ != Stop::kNone) until = ladder_.Next();
  const absl::Duration wait = std::clamp(until - Now(), absl::ZeroDuration(), absl::Minutes(1));
  // Closed descriptors are given as -1, which poll ignores.
  std::array<pollfd, 4> fds = {{{probe_->output().get(), POLLIN, 0},
                                {probe_->errors().get(), POLLIN, 0},
                                {probe_->ended_fd(), POLLIN, 0},
                                {stop_ == Stop::kNone ? cancellation.fd() : -1, POLLIN, 0}}};
  poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1);
}

void ProbeSession::ReadEvents(const ProbeObserver& observer) {
  if (!probe_->output().valid()) return;
  std::string bytes;
  if (!ReadAvailable(probe_->output().get(), bytes)) probe_->output().Reset();
  reader_.Append(bytes);
  while (stop_ != Stop::kBadOutput) {
    auto event = reader_.Next();
    if (!event.ok()) {
      bad_output_ = std::string(event.status().message());
      Begin(Stop::kBadOutput);
      return;
    }
    if (!event->has_value()) return;
    Handle(**event, observer);
  }
}

void ProbeSession::Handle(const v1::ProbeEvent& event, const ProbeObserver& observer) {
  switch (event.event_case()) {
    case v1::ProbeEvent::kStep:
      any_step_ = true;
      last_step_.index = event.step().index();
      last_step_.seconds = event.step().seconds();
      last_step_.loss = event.step().loss();
      observer.step(last_step_);
      break;
    case v1::ProbeEvent::kMemory:
      last_step_.allocated_bytes = event.memory().peak_allocated_bytes();
      last_step_.reserved_bytes = event.memory().peak_reserved_bytes();
      break;
    case v1::ProbeEvent::kFinished:
      finished_ = FromProto<Measurement>(event.finished().measurement());
      linger_until_ = Now() + kLinger;
      break;
    case v1::ProbeEvent::kCalibrating:
      observer.calibrating(event.calibrating().done_ratio(), event.calibrating().what());
      break;
    case v1::ProbeEvent::kCalibrated:
      observer.calibrated(event.calibrated().profile_toml());
      break;
    case v1::ProbeEvent::kStarted:
      if (pid_ == 0) observer.started(pid_ = event.started().pid());
      if (task_.gpu_unique_id.empty() || event.started().device() == task_.device) break;
      seen_device_ = event.started().device();
      Begin(Stop::kWrongDevice);
      break;
    default:
      break;  // events of a newer probe
  }
}

void ProbeSession::ReadErrors() {
  if (!probe_->errors().valid()) return;
  if (!ReadAvailable(probe_->errors().get(), error_tail_)) probe_->errors().Reset();
  if (error_tail_.size() > kTailBytes) error_tail_.erase(0, error_tail_.size() - kTailBytes);
}

std::string ProbeSession::LastWords() const {
  const std::string words(absl::StripAsciiWhitespace(error_tail_));
  if (words.empty()) return "";
  return absl::StrCat("; its last words: ", words.substr(words.rfind('\n') + 1));
}

std::string ProbeSession::NameOfProbe() const {
  return pid_ == 0 ? "the probe" : absl::StrCat("the probe (process ", pid_, ")");
}

Measurement ProbeSession::Judge(const std::optional<ProbeEnd>& end) const {
  const bool stopped = stop_ == Stop::kTimeout || stop_ == Stop::kCancelled;
  const bool stands = finished_ && stop_ != Stop::kWrongDevice;
  if (stands && !(stopped && finished_->outcome == Outcome::kCancelled)) return *finished_;
  const std::string where =
      any_step_ ? absl::StrCat("after step ", last_step_.index) : "before its first step";
  Measurement measurement = finished_.value_or(Measurement{});
  if (!end) {
    measurement.outcome = Outcome::kDeviceLost;
    measurement.message = absl::StrCat(NameOfProbe(), " ", probe_->StillThere(), ", ", where);
  } else if (stop_ == Stop::kTimeout) {
    measurement.outcome = Outcome::kTimeout;
    measurement.message =
        absl::StrCat("stopped at its deadline of ", absl::FormatDuration(task_.deadline), ", ",
                     where);
  } else if (stop_ == Stop::kCancelled) {
    measurement.outcome = Outcome::kCancelled;
    measurement.message = absl::StrCat("cancelled ", where);
  } else if (stop_ == Stop::kWrongDevice) {
    measurement.outcome = Outcome::kInvalid;
    measurement.message = absl::StrCat("the probe was to use ", task_.device, " and sees ",
                                       seen_device_.empty() ? "no device" : seen_device_);
  } else if (stop_ == Stop::kBadOutput) {
    measurement.outcome = Outcome::kCrashed;
    measurement.message = absl::StrCat(bad_output_, LastWords());
  } else {
    measurement.outcome = Outcome::kCrashed;
    measurement.message =
        absl::StrCat(NameOfProbe(), " ", end->how, " ", where, end->hint, LastWords());
  }
  return measurement;
}

}  // namespace hbmtune::daemon
