#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {

// Lengths of sequences, a function of seed, rank and position alone.
class DrawnLengths {
 public:
  DrawnLengths(uint64_t seed, int64_t rank);
  // Between min_tokens and `longest`, with the mean that `sequences` asks for.
  int64_t Next(const SequenceSpec& sequences, int64_t longest);

 private:
  uint64_t stream_;
  uint64_t next_ = 0;
};

// The rows of one optimizer step of one rank.
struct StepRows {
  std::vector<int64_t> lengths;  // micro_batch × grad_accum, in the order in which they are fed
  int64_t padded_tokens = 0;     // what each of them is padded to

  int64_t tokens() const;  // without padding
};

// Step after step of a run whose rows are padded: each to the longest of its step, rounded up to
// pad_multiple, at most seq_len. One thread.
class RowLengths {
 public:
  RowLengths(const Workload& workload, const TrainConfig& config, uint64_t seed, int64_t rank);

  StepRows Next();
  // The first of the rows has seq_len tokens.
  StepRows NextWithLongest();

 private:
  StepRows Draw(bool longest);

  SequenceSpec sequences_;
  int64_t seq_len_;
  int64_t rows_;
  DrawnLengths lengths_;
};

}  // namespace hbmtune
