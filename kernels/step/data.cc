#include "kernels/step/data.h"

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "kernels/core/random.h"

namespace hbmtune::step {
namespace {

class Synthetic final : public DataSource {
 public:
  Synthetic(uint64_t seed, int64_t rank, int64_t vocab)
      : stream_(Mix(Mix(seed) + static_cast<uint64_t>(rank))), vocab_(vocab) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    for (int64_t i = 0; i < rows * tokens; ++i) {
      token_ids[i] = static_cast<int64_t>(Mix(stream_ + next_++) % static_cast<uint64_t>(vocab_));
      labels[i] = token_ids[i];
    }
  }

 private:
  uint64_t stream_;
  uint64_t next_ = 0;
  int64_t vocab_;
};

class Padded final : public DataSource {
 public:
  Padded(uint64_t seed, int64_t rank, int64_t vocab)
      : stream_(Mix(Mix(seed) + static_cast<uint64_t>(rank))), vocab_(vocab) {}

  void BeginStep(const StepRows& rows) override {
    lengths_.assign(rows.lengths.begin(), rows.lengths.end());
  }

  // A row's tokens do not depend on how far it is padded.
  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    for (int64_t row = 0; row < rows; ++row) {
      if (lengths_.empty()) throw std::logic_error("a padded row without a length");
      Synthetic row_tokens(stream_ + next_row_++, 0, vocab_);
      row_tokens.Fill(token_ids, labels, 1, tokens);
      const auto length = lengths_.front();
      lengths_.pop_front();
      std::fill(token_ids + length, token_ids + tokens, 0);
      std::fill(labels + length, labels + tokens, -100);
      token_ids += tokens;
      labels += tokens;
    }
  }

 private:
  uint64_t stream_;
  int64_t vocab_;
  uint64_t next_row_ = 0;
  std::deque<int64_t> lengths_;  // of the step's rows that are still to come
};

class Packed final : public DataSource {
 public:
  Packed(const SequenceSpec& sequences, uint64_t seed, int64_t rank, int64_t vocab)
      : sequences_(sequences), lengths_(seed ^ 0x9ac4, rank), tokens_(seed, rank, vocab) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    tokens_.Fill(token_ids, labels, rows, tokens);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < tokens; i += lengths_.Next(sequences_, tokens)) {
        labels[row * tokens + i] = -100;
      }
    }
  }

 private:
  SequenceSpec sequences_;
  DrawnLengths lengths_;
  Synthetic tokens_;
};

class Text final : public DataSource {
 public:
  Text(std::string text, uint64_t seed, int64_t rank)
      : text_(std::move(text)), stream_(Mix(Mix(seed) + static_cast<uint64_t>(rank))) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    const int64_t starts = static_cast<int64_t>(text_.size()) - tokens + 1;
    if (starts < 1) {
      throw std::invalid_argument("the text has " + std::to_string(text_.size()) +
                                  " bytes, fewer than one sequence of " +
                                  std::to_string(tokens));
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = static_cast<int64_t>(Mix(stream_ + next_++) % starts);
      for (int64_t i = 0; i < tokens; ++i) {
        const auto byte = static_cast<unsigned char>(text_[begin + i]);
        *token_ids++ = byte;
        *labels++ = byte;
      }
    }
  }

 private:
  std::string text_;
  uint64_t stream_;
  uint64_t next_ = 0;
};

class Fixed final : public DataSource {
 public:
  Fixed(std::vector<int64_t> token_ids, std::vector<int64_t> labels)
      : token_ids_(std::move(token_ids)), labels_(std::move(labels)) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    if (rows * tokens != static_cast<int64_t>(token_ids_.size())) {
      throw std::invalid_argument("the fixed micro-batch has " +
                                  std::to_string(token_ids_.size()) + " tokens, asked for " +
                                  std::to_string(rows * tokens));
    }
    std::copy(token_ids_.begin(), token_ids_.end(), token_ids);
    std::copy(labels_.begin(), labels_.end(), labels);
  }

 private:
  std::vector<int64_t> token_ids_;
  std::vector<int64_t> labels_;
};

}  // namespace

std::unique_ptr<DataSource> SyntheticTokens(uint64_t seed, int64_t rank, int64_t vocab) {
  return std::make_unique<Synthetic>(seed, rank, vocab);
}

std::unique_ptr<DataSource> PaddedTokens(uint64_t seed, int64_t rank, int64_t vocab) {
  return std::make_unique<Padded>(seed, rank, vocab);
}

std::unique_ptr<DataSource> PackedTokens(const SequenceSpec& sequences, uint64_t seed,
                                         int64_t rank, int64_t vocab) {
  return std::make_unique<Packed>(sequences, seed, rank, vocab);
}

std::unique_ptr<DataSource> TextBytes(std::string text, uint64_t seed, int64_t rank,
                                      int64_t vocab) {
  if (vocab < 256) {
    throw std::invalid_argument("bytes as tokens need a vocabulary of 256, the model has " +
                                std::to_string(vocab));
  }
  return std::make_unique<Text>(std::move(text), seed, rank);
}

std::unique_ptr<DataSource> FixedTokens(std::vector<int64_t> token_ids,
                                        std::vector<int64_t> labels) {
  return std::make_unique<Fixed>(std::move(token_ids), std::move(labels));
}

}  // namespace hbmtune::step
