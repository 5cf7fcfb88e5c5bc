#include "daemon/services/rate_limit.h"

#include <algorithm>

namespace hbmtune::daemon {
namespace {

constexpr double kBurstSeconds = 2;

}  // namespace

void RateLimit::SetRate(double requests_per_second) {
  absl::MutexLock lock(&mutex_);
  rate_ = requests_per_second;
}

absl::Duration RateLimit::Take(int64_t uid) {
  const absl::Duration now = clock_.SinceBoot();
  absl::MutexLock lock(&mutex_);
  const double most = std::max(1.0, rate_ * kBurstSeconds);
  Bucket& bucket = buckets_.try_emplace(uid, Bucket{most, now}).first->second;
  const double came = rate_ * absl::ToDoubleSeconds(now - bucket.filled);
  bucket = {std::min(most, bucket.requests + came), now};
  if (bucket.requests < 1) return absl::Seconds((1 - bucket.requests) / rate_);
  bucket.requests -= 1;
  return absl::ZeroDuration();
}

}  // namespace hbmtune::daemon
