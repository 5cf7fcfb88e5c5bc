#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/row_lengths.h"
#include "kernels/core/workload.h"

namespace hbmtune::step {

// Where micro-batches come from. Row-major [rows, tokens]; labels are not shifted, −100 is
// ignored. One thread.
class DataSource {
 public:
  virtual ~DataSource() = default;
  // The rows that the next step will ask for. Only padded rows want to know.
  virtual void BeginStep(const StepRows&) {}
  virtual void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) = 0;
};

// Uniform tokens, each micro-batch other ones; a function of seed, rank and position alone.
std::unique_ptr<DataSource> SyntheticTokens(uint64_t seed, int64_t rank, int64_t vocab);

// Rows of the lengths that BeginStep was told; the rest of a row is padding that no label counts.
std::unique_ptr<DataSource> PaddedTokens(uint64_t seed, int64_t rank, int64_t vocab);

// Documents of drawn lengths one after the other, the last cut where the row ends. The label of a
// document's first token is ignored, which is what tells documents apart (ops/document_starts).
std::unique_ptr<DataSource> PackedTokens(const SequenceSpec& sequences, uint64_t seed,
                                         int64_t rank, int64_t vocab);

// The bytes of a text as tokens, windows at random positions. Throws std::invalid_argument if the
// text is shorter than one window or the vocabulary smaller than 256.
std::unique_ptr<DataSource> TextBytes(std::string text, uint64_t seed, int64_t rank,
                                      int64_t vocab);

// The same micro-batch again and again.
std::unique_ptr<DataSource> FixedTokens(std::vector<int64_t> token_ids,
                                        std::vector<int64_t> labels);

}  // namespace hbmtune::step
