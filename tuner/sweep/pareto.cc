#include "tuner/sweep/sweep.h"

namespace hbmtune::tuner {

bool ParetoFront::Add(const SweptConfig& swept) {
  if (!swept.estimate.fits) return false;
  const int64_t bytes = swept.estimate.peak_used_bytes;
  const double speed = swept.estimate.tokens_per_second;
  auto above = front_.upper_bound(bytes);  // the first that needs more
  if (above != front_.begin() &&
      std::prev(above)->second.estimate.tokens_per_second >= speed) {
    return false;  // one needs no more and is as fast
  }
  while (above != front_.end() && above->second.estimate.tokens_per_second <= speed) {
    above = front_.erase(above);
  }
  front_.insert_or_assign(bytes, swept);
  return true;
}

std::vector<SweptConfig> ParetoFront::Sorted() const {
  std::vector<SweptConfig> sorted;
  for (auto entry = front_.rbegin(); entry != front_.rend(); ++entry) {
    sorted.push_back(entry->second);
  }
  return sorted;
}

}  // namespace hbmtune::tuner
