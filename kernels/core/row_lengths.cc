#include "kernels/core/row_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/core/random.h"

namespace hbmtune {

DrawnLengths::DrawnLengths(uint64_t seed, int64_t rank)
    : stream_(Mix(Mix(seed) + static_cast<uint64_t>(rank))) {}

// min + (longest − min) · u^power, whose mean is min + (longest − min) / (power + 1).
int64_t DrawnLengths::Next(const SequenceSpec& sequences, int64_t longest) {
  const auto least = static_cast<double>(std::clamp<int64_t>(sequences.min_tokens, 1, longest));
  const double range = static_cast<double>(longest) - least;
  const double mean = sequences.mean_ratio * static_cast<double>(longest) - least;
  const double uniform = static_cast<double>(Mix(stream_ + next_++) >> 11) * 0x1p-53;
  if (mean <= 0 || range <= 0) return static_cast<int64_t>(least);
  const double power = std::max(range / mean - 1, 1e-3);
  return static_cast<int64_t>(least + range * std::pow(uniform, power));
}

int64_t StepRows::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

RowLengths::RowLengths(const Workload& workload, const TrainConfig& config, uint64_t seed,
                       int64_t rank)
    : sequences_(workload.sequences),
      seq_len_(workload.seq_len),
      rows_(config.micro_batch * config.grad_accum),
      lengths_(seed ^ 0x9add, rank) {}

StepRows RowLengths::Next() { return Draw(false); }

StepRows RowLengths::NextWithLongest() { return Draw(true); }

StepRows RowLengths::Draw(bool longest) {
  constexpr int64_t kLeastTokens = 2;  // a token to predict from and one to predict
  StepRows rows;
  for (int64_t i = 0; i < rows_; ++i) {
    const int64_t drawn = lengths_.Next(sequences_, seq_len_);
    rows.lengths.push_back(longest && i == 0 ? seq_len_ : drawn);
    rows.padded_tokens = std::max({rows.padded_tokens, rows.lengths.back(), kLeastTokens});
  }
  const int64_t multiple = std::max<int64_t>(1, sequences_.pad_multiple);
  const int64_t rounded = (rows.padded_tokens + multiple - 1) / multiple * multiple;
  rows.padded_tokens = std::min(rounded, seq_len_);
  return rows;
}

}  // namespace hbmtune
