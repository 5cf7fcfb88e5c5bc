#include "kernels/step/data.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/step/random.h"

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

// Lengths between min_tokens and a longest one, with the mean that the spec asks for.
class Lengths {
 public:
  Lengths(const SequenceSpec& sequences, uint64_t seed, int64_t rank)
      : sequences_(sequences), stream_(Mix(Mix(seed) + static_cast<uint64_t>(rank))) {}

  // min + (longest − min) · u^power, whose mean is min + (longest − min) / (power + 1).
  int64_t Next(int64_t longest) {
    const auto least =
        static_cast<double>(std::clamp<int64_t>(sequences_.min_tokens, 1, longest));
    const double range = static_cast<double>(longest) - least;
    const double mean = sequences_.mean_ratio * static_cast<double>(longest) - least;
    const double uniform = static_cast<double>(Mix(stream_ + next_++) >> 11) * 0x1p-53;
    if (mean <= 0 || range <= 0) return static_cast<int64_t>(least);
    const double power = std::max(range / mean - 1, 1e-3);
    return static_cast<int64_t>(least + range * std::pow(uniform, power));
  }

 private:
  SequenceSpec sequences_;
  uint64_t stream_;
  uint64_t next_ = 0;
};

class Padded final : public DataSource {
 public:
  Padded(const SequenceSpec& sequences, uint64_t seed, int64_t rank, int64_t vocab)
      : lengths_(sequences, seed ^ 0x9add, rank), tokens_(seed, rank, vocab) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    tokens_.Fill(token_ids, labels, rows, tokens);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t length = lengths_.Next(tokens);
      for (int64_t i = first_ ? tokens : length; i < tokens; ++i) {
        token_ids[row * tokens + i] = 0;
        labels[row * tokens + i] = -100;
      }
      first_ = false;
    }
  }

 private:
  Lengths lengths_;
  Synthetic tokens_;
  bool first_ = true;
};

class Packed final : public DataSource {
 public:
  Packed(const SequenceSpec& sequences, uint64_t seed, int64_t rank, int64_t vocab)
      : lengths_(sequences, seed ^ 0x9ac4, rank), tokens_(seed, rank, vocab) {}

  void Fill(int64_t* token_ids, int64_t* labels, int64_t rows, int64_t tokens) override {
    tokens_.Fill(token_ids, labels, rows, tokens);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < tokens; i += lengths_.Next(tokens)) labels[row * tokens + i] = -100;
    }
  }

 private:
  Lengths lengths_;
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

std::unique_ptr<DataSource> PaddedTokens(const SequenceSpec& sequences, uint64_t seed,
                                         int64_t rank, int64_t vocab) {
  return std::make_unique<Padded>(sequences, seed, rank, vocab);
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
