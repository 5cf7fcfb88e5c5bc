#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuner/workloads.h"
#include "tuner/recommend/recommend.h"

namespace hbmtune::tuner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// States of `parameters` parameters plus activations, by the textbook's bytes.
Estimate Textbook(const Workload& w, const TrainConfig& c, int64_t ceiling_bytes) {
  constexpr double kParameters = 1e6;
  double trained = w.lora.rank > 0 ? 0.01 * kParameters : kParameters;
  double shards = c.zero.stage >= 2 ? double(w.world_size) : 1;
  double weights = kParameters * double(SizeOf(c.param_dtype));
  double states = trained * (c.param_dtype == Dtype::kBf16 && !c.master_weights ? 4 : 12) / shards;
  double tokens = double(w.seq_len * c.micro_batch);
  double activations = tokens * (c.checkpoint.every == 1 ? 100 : 2000);
  if (c.offload.optimizer != OptimizerOffload::kNone) states = 0;
  Estimate estimate;
  estimate.peak_used_bytes = int64_t(weights + states + activations);
  estimate.ceiling_bytes = estimate.capacity_bytes = ceiling_bytes;
  estimate.fits = estimate.peak_used_bytes <= ceiling_bytes;
  double speed = c.offload.optimizer == OptimizerOffload::kNone ? 1000 : 800;
  estimate.tokens_per_second = speed * double(w.world_size);
  return estimate;
}

Shortfall Explain(const Workload& workload, int64_t ceiling_bytes, const Pins& pins = {}) {
  absl::StatusOr<Space> space = Space::Create(workload, {}, pins);
  EXPECT_TRUE(space.ok()) << space.status();
  absl::StatusOr<Shortfall> shortfall =
      ExplainShortfall(*space, {}, [&](const Workload& w, const TrainConfig& c) {
        return absl::StatusOr<Estimate>(Textbook(w, c, ceiling_bytes));
      });
  EXPECT_TRUE(shortfall.ok()) << shortfall.status();
  return shortfall.value_or(Shortfall{});
}

const Hint* FindHint(const Shortfall& shortfall, const std::string& change) {
  for (const Hint& hint : shortfall.hints) {
    if (hint.change == change) return &hint;
  }
  return nullptr;
}

TEST(Shortfall, TellsTheLeastConfigAndWhatItNeeds) {
  Shortfall shortfall = Explain(MakeWorkload(Framework::kHfSdpa), 1'000'000);
  EXPECT_EQ(shortfall.train_config.checkpoint.every, 1);
  EXPECT_EQ(shortfall.train_config.micro_batch, 1);
  EXPECT_THAT(shortfall.message,
              AllOf(StartsWith("nothing fits in 976.56 KiB: the least is "),
                    HasSubstr("micro-batch 1, checkpoint every layer, bf16 autocast")));
}

TEST(Shortfall, SaysThatItLookedAtTooFewToKnowTheLeast) {
  // 21 stages, buckets and sizes that are one group for the search, times 64.
  const Pins pins = {{"zero.sub_group_size", {10, 20, 30, 40}},
                     {"zero.prefetch_bucket_size", {10, 20, 30, 40}},
                     {"zero.max_live_parameters", {10, 20, 30, 40}}};
  const Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed, "tiny-llama", 8);
  EXPECT_THAT(Explain(workload, 1'000'000, pins).message,
              HasSubstr("the least of 160 that were estimated is "));
}

TEST(Shortfall, RanksPaddedRowsByFullOnes) {
  Workload workload = MakeWorkload(Framework::kFused);
  workload.sequences.layout = SequenceLayout::kPadded;
  const Space space = *Space::Create(workload, {});
  int padded = 0;
  absl::StatusOr<Shortfall> shortfall =
      FindShortfall(space, [&](const Workload& w, const TrainConfig& c) {
        padded += w.sequences.layout == SequenceLayout::kPadded;
        return absl::StatusOr<Estimate>(Textbook(w, c, 1'000'000));
      });
  ASSERT_TRUE(shortfall.ok());
  EXPECT_EQ(padded, 1);
}

TEST(Shortfall, SaysThatTheReserveTookAll) {
  EXPECT_THAT(Explain(MakeWorkload(Framework::kHfSdpa), 0).message,
              HasSubstr("the larger of 5 % and 2 GiB stays free, so none may be used"));
}

TEST(Shortfall, HintsAtWhatThePinsForbid) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed);
  Shortfall shortfall = Explain(workload, 3'000'000, {{"offload.optimizer", "none"}});
  const Hint* hint = FindHint(shortfall, "offload.optimizer=cpu_adam with zero.stage=2");
  ASSERT_NE(hint, nullptr);
  EXPECT_TRUE(hint->fits);
  EXPECT_EQ(hint->saved_bytes, 12'000'000);
  EXPECT_DOUBLE_EQ(hint->cost_ratio, 0.25);
}

TEST(Shortfall, HintsAtTheFewestRanksThatDo) {
  Workload workload = MakeWorkload(Framework::kHfSdpaDeepspeed);
  Shortfall shortfall = Explain(workload, 6'000'000, {{"offload.optimizer", "none"}});
  const Hint* hint = FindHint(shortfall, "world_size=4 with zero.stage=2");
  ASSERT_NE(hint, nullptr);
  EXPECT_TRUE(hint->fits);
  EXPECT_DOUBLE_EQ(hint->cost_ratio, 0);
}

TEST(Shortfall, PutsFirstWhatMakesItFit) {
  Shortfall shortfall = Explain(MakeWorkload(Framework::kHfSdpa), 7'000'000);
  ASSERT_FALSE(shortfall.hints.empty());
  EXPECT_TRUE(shortfall.hints.front().fits);
  EXPECT_NE(FindHint(shortfall, "precision=bf16"), nullptr);
  EXPECT_NE(FindHint(shortfall, "lora.rank=16"), nullptr);
  for (size_t i = 1; i < shortfall.hints.size(); ++i) {
    EXPECT_GE(shortfall.hints[i - 1].fits, shortfall.hints[i].fits);
  }
}

TEST(Shortfall, FailsWhereNothingCanBeEstimated) {
  Space space = *Space::Create(MakeWorkload(Framework::kHfSdpa), {});
  absl::Status status =
      ExplainShortfall(space, {}, [](const Workload&, const TrainConfig&) {
        return absl::StatusOr<Estimate>(absl::InvalidArgumentError("no such thing"));
      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such thing"));
}

TEST(Shortfall, NamesTheHostsMemoryWhereThatIsShort) {
  Space space = *Space::Create(MakeWorkload(Framework::kHfSdpa), {});
  absl::StatusOr<Shortfall> shortfall =
      ExplainShortfall(space, {}, [](const Workload& w, const TrainConfig& c) {
        Estimate estimate = Textbook(w, c, int64_t{1} << 40);
        estimate.fits = false;
        estimate.host_bytes = int64_t{3} << 30;
        return absl::StatusOr<Estimate>(estimate);
      });
  ASSERT_TRUE(shortfall.ok());
  EXPECT_THAT(shortfall->message, AllOf(StartsWith("nothing fits in the host's memory"),
                                        HasSubstr("3.00 GiB")));
}

}  // namespace
}  // namespace hbmtune::tuner
