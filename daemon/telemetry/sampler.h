#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/telemetry/sysfs.h"

// Samples every GPU of a node: used VRAM at 10 Hz, the rest at 1 Hz; keeps ten minutes in memory
// and hands one row a device and minute to whoever stores it.
namespace hbmtune {

struct VramPoint {
  double seconds = 0;  // of the sampler's clock
  int64_t used_bytes = 0;
};

struct MinuteRow {
  std::string device;
  int64_t minute = 0;  // seconds ÷ 60, rounded down
  int64_t least_bytes = 0;
  double mean_bytes = 0;
  int64_t most_bytes = 0;
};

struct DeviceState {
  GpuIdentity identity;
  bool present = false;  // its memory could be read in the last second
  double sampled_seconds = 0;
  GpuSample sample;
  std::vector<GpuProcess> processes;
};

// Thread-safe. The clock returns seconds and never falls back.
class Sampler {
 public:
  static constexpr double kVramPeriodSeconds = 0.1;
  static constexpr double kSamplePeriodSeconds = 1.0;
  static constexpr double kHistorySeconds = 600;
  static constexpr double kDiscoverPeriodSeconds = 10;

  Sampler(Sysfs sysfs, std::function<double()> clock,
          std::function<void(const MinuteRow&)> on_minute);
  ~Sampler();

  // Samples on a thread of its own until Stop. Nothing runs on a node without GPUs but a look for
  // new ones every ten seconds.
  void Start();
  void Stop();
  // One round, as the thread does it; for tests.
  void Tick();

  std::vector<DeviceState> Devices() const;
  // Points of the last ten minutes, oldest first; empty for an unknown device.
  std::vector<VramPoint> History(const std::string& device) const;

 private:
  struct Track {
    DeviceState state;
    std::deque<VramPoint> history;
    std::optional<MinuteRow> minute;
    int64_t minute_points = 0;
  };

  void Discover(double now);
  void AddPoint(Track& track, double now, int64_t used_bytes, std::vector<MinuteRow>& finished);

  const Sysfs sysfs_;
  const std::function<double()> clock_;
  const std::function<void(const MinuteRow&)> on_minute_;

  mutable std::mutex mutex_;
  std::map<std::string, Track> tracks_;  // guarded by mutex_
  bool stopping_ = false;                // guarded by mutex_
  std::condition_variable wake_;
  double next_sample_seconds_ = 0;    // used by Tick only
  double next_discover_seconds_ = 0;  // used by Tick only
  std::thread thread_;
};

}  // namespace hbmtune
