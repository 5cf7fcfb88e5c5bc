#include "daemon/telemetry/leak_detector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace hbmtune {
namespace {

constexpr int kQuarters = 4;
constexpr size_t kLeastPointsPerQuarter = 8;
constexpr double kLowQuantile = 0.2;
constexpr double kHighQuantile = 0.8;
constexpr double kLeastRiseRatio = 0.005;
// The floor of a quarter of AR(1) noise (rho 0.5) strays by about 0.6 sigma, a rise by 0.9 sigma.
constexpr double kNoiseFactor = 2.5;
constexpr double kLeastLastToFirst = 0.5;
constexpr double kMadToSigma = 1.4826;

double Quantile(std::vector<double>& values, double share) {
  auto nth = values.begin() + static_cast<long>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace

std::optional<Leak> LeakDetector::Add(int64_t step, int64_t allocated_bytes) {
  if (!points_.empty() && step == points_.back().step) return std::nullopt;
  if (!points_.empty() && step < points_.back().step) {
    points_.clear();
    last_alarm_step_.reset();
  }
  points_.push_back({step, static_cast<double>(allocated_bytes)});
  while (points_.front().step <= step - kWindowSteps) points_.pop_front();
  if (last_alarm_step_ && step - *last_alarm_step_ < kWindowSteps) return std::nullopt;
  auto leak = Examine();
  if (leak) last_alarm_step_ = step;
  return leak;
}

std::optional<Leak> LeakDetector::Examine() const {
  const int64_t end = points_.back().step;
  const int64_t begin = points_.front().step - 1;
  const int64_t window = end - begin;
  if (window < kWindowSteps * 19 / 20) return std::nullopt;
  std::array<Quarter, kQuarters> quarters;
  for (int i = 0; i < kQuarters; ++i) {
    auto quarter = QuarterOf(begin + window * i / kQuarters, begin + window * (i + 1) / kQuarters);
    if (!quarter) return std::nullopt;
    quarters[i] = *quarter;
  }
  const double least = std::max(kLeastRiseRatio * quarters[0].low, kNoiseFactor * Noise());
  for (int i = 1; i < kQuarters; ++i) {
    if (quarters[i].low - quarters[i - 1].low <= least) return std::nullopt;
    if (quarters[i].high - quarters[i - 1].high <= least) return std::nullopt;
  }
  const double first = quarters[1].low - quarters[0].low;
  const double last = quarters[kQuarters - 1].low - quarters[kQuarters - 2].low;
  if (last < kLeastLastToFirst * first) return std::nullopt;
  const double growth = quarters[kQuarters - 1].low - quarters[0].low;
  const double steps = static_cast<double>(window) * (kQuarters - 1) / kQuarters;
  return Leak{end, growth / steps, static_cast<int64_t>(growth), window};
}

std::optional<LeakDetector::Quarter> LeakDetector::QuarterOf(int64_t from_step,
                                                             int64_t to_step) const {
  std::vector<double> values;
  for (const Point& point : points_) {
    if (point.step > from_step && point.step <= to_step) values.push_back(point.bytes);
  }
  if (values.size() < kLeastPointsPerQuarter) return std::nullopt;
  return Quarter{Quantile(values, kLowQuantile), Quantile(values, kHighQuantile)};
}

double LeakDetector::Noise() const {
  std::vector<double> differences;
  for (size_t i = 1; i < points_.size(); ++i) {
    differences.push_back(std::abs(points_[i].bytes - points_[i - 1].bytes));
  }
  return kMadToSigma * Quantile(differences, 0.5);
}

}  // namespace hbmtune
