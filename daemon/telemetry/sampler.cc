#include "daemon/telemetry/sampler.h"

#include <algorithm>
#include <chrono>

namespace hbmtune {

Sampler::Sampler(Sysfs sysfs, std::function<double()> clock,
                 std::function<void(const MinuteRow&)> on_minute)
    : sysfs_(std::move(sysfs)), clock_(std::move(clock)), on_minute_(std::move(on_minute)) {}

Sampler::~Sampler() { Stop(); }

void Sampler::Start() {
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      lock.unlock();
      Tick();
      lock.lock();
      double period = tracks_.empty() ? kDiscoverPeriodSeconds : kVramPeriodSeconds;
      wake_.wait_for(lock, std::chrono::duration<double>(period), [this] { return stopping_; });
    }
  });
}

void Sampler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Sampler::Discover(double now) {
  auto found = sysfs_.Discover();
  std::lock_guard lock(mutex_);
  for (const GpuIdentity& gpu : found) {
    Track& track = tracks_[gpu.name()];
    track.state.identity = gpu;
  }
  next_discover_seconds_ = now + kDiscoverPeriodSeconds;
}

// Files are read without the lock: a wedged driver may hold a reader up, but no one else.
void Sampler::Tick() {
  const double now = clock_();
  if (now >= next_discover_seconds_) Discover(now);
  const bool whole = now >= next_sample_seconds_;
  if (whole) next_sample_seconds_ = now + kSamplePeriodSeconds;
  std::vector<GpuIdentity> gpus;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [unused, track] : tracks_) gpus.push_back(track.state.identity);
  }
  std::vector<MinuteRow> finished;
  for (const GpuIdentity& gpu : gpus) {
    std::optional<GpuSample> sample;
    std::vector<GpuProcess> processes;
    if (whole) {
      sample = sysfs_.Read(gpu);
      processes = sysfs_.Processes(gpu);
    }
    auto used = whole ? sample->vram_used_bytes : sysfs_.ReadVramUsed(gpu);
    std::lock_guard lock(mutex_);
    Track& track = tracks_[gpu.name()];
    if (whole) {
      track.state.present = sample->vram_total_bytes.has_value();
      track.state.sampled_seconds = now;
      track.state.sample = std::move(*sample);
      track.state.processes = std::move(processes);
    }
    track.state.sample.vram_used_bytes = used;
    if (used) AddPoint(track, now, *used, finished);
  }
  for (const MinuteRow& row : finished) on_minute_(row);
}

void Sampler::AddPoint(Track& track, double now, int64_t used_bytes,
                       std::vector<MinuteRow>& finished) {
  track.history.push_back({now, used_bytes});
  while (track.history.front().seconds < now - kHistorySeconds) track.history.pop_front();
  const int64_t minute = static_cast<int64_t>(now / 60);
  if (track.minute && track.minute->minute != minute) {
    finished.push_back(*track.minute);
    track.minute.reset();
  }
  if (!track.minute) {
    track.minute = MinuteRow{track.state.identity.name(), minute, used_bytes, 0, used_bytes};
    track.minute_points = 0;
  }
  MinuteRow& row = *track.minute;
  ++track.minute_points;
  row.least_bytes = std::min(row.least_bytes, used_bytes);
  row.most_bytes = std::max(row.most_bytes, used_bytes);
  row.mean_bytes += (static_cast<double>(used_bytes) - row.mean_bytes) /
                    static_cast<double>(track.minute_points);
}

std::vector<DeviceState> Sampler::Devices() const {
  std::lock_guard lock(mutex_);
  std::vector<DeviceState> devices;
  for (const auto& [unused, track] : tracks_) devices.push_back(track.state);
  return devices;
}

std::vector<VramPoint> Sampler::History(const std::string& device) const {
  std::lock_guard lock(mutex_);
  auto found = tracks_.find(device);
  if (found == tracks_.end()) return {};
  return {found->second.history.begin(), found->second.history.end()};
}

}  // namespace hbmtune
