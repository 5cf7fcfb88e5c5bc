// Documents packed into one row train as if each had a row of its own; padding trains nothing.

#include <gtest/gtest.h>

#include "tests/kernels/lowering/small_models.h"
#include "tests/kernels/lowering/step_run.h"

namespace hbmtune::testing {
namespace {

using Documents = std::vector<std::vector<int64_t>>;

// 7, 9 and 8 tokens of the small vocabulary.
Documents SomeDocuments() {
  Documents documents;
  int64_t token = 5;
  for (int64_t length : {7, 9, 8}) {
    std::vector<int64_t>& document = documents.emplace_back();
    for (int64_t i = 0; i < length; ++i) document.push_back(token = (token * 37 + 11) % 61);
  }
  return documents;
}

struct Rows {
  int64_t count = 0, tokens = 0;
  std::vector<int64_t> token_ids = {}, labels = {};
};

// One row, each document's first label ignored.
Rows Packed(const Documents& documents) {
  Rows rows{.count = 1};
  for (const auto& document : documents) {
    rows.token_ids.insert(rows.token_ids.end(), document.begin(), document.end());
    rows.labels.push_back(-100);
    rows.labels.insert(rows.labels.end(), document.begin() + 1, document.end());
  }
  rows.tokens = static_cast<int64_t>(rows.token_ids.size());
  return rows;
}

Rows Padded(const Documents& documents, int64_t tokens) {
  Rows rows{.count = static_cast<int64_t>(documents.size()), .tokens = tokens};
  for (const auto& document : documents) {
    for (int64_t i = 0; i < tokens; ++i) {
      const bool there = i < static_cast<int64_t>(document.size());
      rows.token_ids.push_back(there ? document[i] : 3);
      rows.labels.push_back(there ? document[i] : -100);
    }
  }
  return rows;
}

struct Case {
  const char* model;
  Dtype dtype;
  AttentionKind attention;
};

// The loss, then every gradient.
using Gradients = std::map<std::string, std::vector<double>>;

Gradients Train(const Case& c, SequenceLayout layout, const Rows& rows) {
  Workload workload = SmallWorkload(c.model);
  workload.sequences.layout = layout;
  workload.seq_len = rows.tokens;
  TrainConfig config;
  config.micro_batch = rows.count;
  config.param_dtype = config.compute_dtype = config.optimizer_state_dtype = c.dtype;
  config.attention = c.attention;
  lowering::FusedOptions options;
  options.keep_gradients = true;
  StepRun run(lowering::LowerFused(workload, config, options));
  run.Start(workload);
  run.set_data(step::FixedTokens(rows.token_ids, rows.labels));
  Gradients gradients;
  gradients["loss"] = {run.Step()};
  for (const NamedView& named : run.program().state) {
    if (named.name.ends_with(".grad")) gradients[named.name] = run.Values(named.name);
  }
  return gradients;
}

class DocumentsOf : public ::testing::TestWithParam<Case> {
 protected:
  void ExpectEqual(const Gradients& a, const Gradients& b) const {
    const double tolerance = GetParam().dtype == Dtype::kF64 ? 1e-12 : 1e-5;
    EXPECT_GT(a.size(), 20u);
    for (const auto& [name, values] : b) {
      EXPECT_LE(RelativeError(a.at(name), values), tolerance) << name;
    }
  }
};

TEST_P(DocumentsOf, APackedRowAreSeparateRows) {
  const Documents documents = SomeDocuments();
  ExpectEqual(Train(GetParam(), SequenceLayout::kPacked, Packed(documents)),
              Train(GetParam(), SequenceLayout::kPadded, Padded(documents, 9)));
}

TEST_P(DocumentsOf, AreNotApartWithoutTheMask) {
  const Documents documents = SomeDocuments();
  const auto packed = Train(GetParam(), SequenceLayout::kPacked, Packed(documents));
  const auto one = Train(GetParam(), SequenceLayout::kFixed, Packed(documents));
  EXPECT_GT(RelativeError(packed.at("loss"), one.at("loss")), 1e-4);
}

TEST_P(DocumentsOf, APaddedRowAreItsTokensAlone) {
  const Documents documents = {SomeDocuments()[1]};
  ExpectEqual(Train(GetParam(), SequenceLayout::kPadded, Padded(documents, 16)),
              Train(GetParam(), SequenceLayout::kFixed, Padded(documents, 9)));
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"llama", "falcon", "gpt2"}) {
    for (Dtype dtype : {Dtype::kF32, Dtype::kF64}) {
      for (AttentionKind kind : {AttentionKind::kTiled, AttentionKind::kMaterialised}) {
        cases.push_back({model, dtype, kind});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, DocumentsOf, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" +
                                  std::string(Name(info.param.dtype)) + "_" +
                                  std::string(Name(info.param.attention));
                         });

TEST(PackedTokens, FillsRowsWithDocumentsOfTheSpecsLengths) {
  const SequenceSpec spec{SequenceLayout::kPacked, 4, 0.25};
  constexpr int64_t kRows = 200, kTokens = 64;
  auto fill = [&](uint64_t seed, int64_t rank) {
    Rows rows{kRows, kTokens, std::vector<int64_t>(kRows * kTokens), {}};
    rows.labels.resize(rows.token_ids.size());
    step::PackedTokens(spec, seed, rank, 61)
        ->Fill(rows.token_ids.data(), rows.labels.data(), kRows, kTokens);
    return rows;
  };
  const Rows rows = fill(1, 0);
  int64_t documents = 0, shortest = kTokens;
  for (int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(rows.labels[row * kTokens], -100);
    int64_t start = 0;
    for (int64_t s = 0; s < kTokens; ++s) {
      const int64_t i = row * kTokens + s;
      if (rows.labels[i] != -100) {
        EXPECT_EQ(rows.labels[i], rows.token_ids[i]);
        continue;
      }
      ++documents;
      if (s > 0) shortest = std::min(shortest, s - start);
      start = s;
    }
  }
  EXPECT_EQ(shortest, 4);
  EXPECT_NEAR(static_cast<double>(kRows * kTokens) / static_cast<double>(documents), 16, 4);
  EXPECT_EQ(fill(1, 0).labels, rows.labels);
  EXPECT_NE(fill(2, 0).labels, rows.labels);
  EXPECT_NE(fill(1, 1).labels, rows.labels);
}

}  // namespace
}  // namespace hbmtune::testing
