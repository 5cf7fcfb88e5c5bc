#include "client/request_flags.h"

#include <CLI/Config.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hbmtune::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

template <class Flags>
void Parse(Flags& flags, std::vector<std::string> words) {
  CLI::App app;
  flags.AddTo(app);
  std::reverse(words.begin(), words.end());
  app.parse(words);
}

absl::StatusOr<std::map<std::string, std::string>> Pins(const std::vector<std::string>& words) {
  PinFlags flags;
  Parse(flags, words);
  return flags.Pins(Framework::kFused);
}

TEST(PinFlags, AFieldsOwnFlagIsAPin) {
  EXPECT_THAT(*Pins({"--zero.stage", "2", "--param-dtype", "bf16", "--zero.overlap-comm"}),
              UnorderedElementsAre(Pair("zero.stage", "2"), Pair("param_dtype", "bf16"),
                                   Pair("zero.overlap_comm", "true")));
}

TEST(PinFlags, APinMayBeRepeatedAndNarrow) {
  EXPECT_THAT(*Pins({"--pin", "checkpoint.every=0,1,4", "--pin", "micro-batch=1:16", "--pin",
                     "grad_accum=:8", "--zero.reduce-bucket-size", "2e8,5e8"}),
              UnorderedElementsAre(Pair("checkpoint.every", "0,1,4"), Pair("micro_batch", "1:16"),
                                   Pair("grad_accum", ":8"),
                                   Pair("zero.reduce_bucket_size", "200000000,500000000")));
}

TEST(PinFlags, PrecisionIsPassedOnByName) {
  EXPECT_THAT(*Pins({"--precision", "bf16-amp"}),
              UnorderedElementsAre(Pair("precision", "bf16-amp")));
  EXPECT_THAT(*Pins({"--pin", "precision=bf16"}), UnorderedElementsAre(Pair("precision", "bf16")));
}

TEST(PinFlags, PrecisionBesideAFieldOfItsOwnIsSpeltOutAsInAnEstimate) {
  EXPECT_THAT(*Pins({"--precision", "bf16", "--param-dtype", "fp32"}),
              UnorderedElementsAre(Pair("param_dtype", "fp32"), Pair("compute_dtype", "bf16"),
                                   Pair("optimizer_state_dtype", "bf16"),
                                   Pair("master_weights", "false")));
}

TEST(PinFlags, AFlagAndAPinThatDisagreeAreRefused) {
  EXPECT_EQ(Pins({"--micro-batch", "2", "--pin", "micro-batch=4"}).status().message(),
            "--micro-batch 2 and --pin micro-batch=4 disagree: give one of them");
  EXPECT_FALSE(Pins({"--precision", "bf16", "--pin", "precision=fp32"}).ok());
  EXPECT_TRUE(Pins({"--micro-batch", "2", "--pin", "micro-batch=2"}).ok());
}

TEST(PinFlags, TwoPinsOfAFieldThatDisagreeAreRefused) {
  EXPECT_EQ(Pins({"--pin", "zero.stage=1", "--pin", "zero.stage=2"}).status().message(),
            "--pin zero.stage is given twice: as 1 and as 2");
  EXPECT_FALSE(Pins({"--pin", "precision=bf16", "--pin", "precision=fp32"}).ok());
  EXPECT_FALSE(Pins({"--pin", "offload.optimizer=stream", "--pin", "offload=none"}).ok());
  EXPECT_TRUE(Pins({"--pin", "zero.stage=1", "--pin", "zero.stage=1"}).ok());
}

TEST(PinFlags, AWholeStructIsPinnedWhereItsEnumsShareTheName) {
  EXPECT_THAT(*Pins({"--pin", "offload=none"}),
              UnorderedElementsAre(Pair("offload.optimizer", "none"),
                                   Pair("offload.activations", "none")));
  EXPECT_FALSE(Pins({"--pin", "offload=stream"}).ok());
}

TEST(PinFlags, WhatIsWrongIsNamed) {
  auto message = [](const std::string& pin) {
    return std::string(Pins({"--pin", pin}).status().message());
  };
  EXPECT_EQ(message("zero.stag=2"),
            "--pin: a train config has no field 'zero.stag' (did you mean zero.stage?)");
  EXPECT_EQ(message("zero.stage=two"), "--pin zero.stage: 'two' is not a whole number");
  EXPECT_EQ(message("zero.stage"), "--pin: 'zero.stage' is not FIELD=VALUE");
  EXPECT_THAT(message("param_dtype=bf61"), HasSubstr("did you mean bf16?"));
  EXPECT_FALSE(Pins({"--pin", "micro-batch=1,"}).ok());
}

TEST(PinFlags, WhatIsWrongInAGridIsCalledSo) {
  PinFlags flags;
  flags.grid = {"micro_batsh=1,2"};
  EXPECT_THAT(std::string(flags.Pins(Framework::kFused).status().message()),
              HasSubstr("--grid: a train config has no field 'micro_batsh' (did you mean "
                        "micro-batch?)"));
  flags.grid = {"micro_batch=1,x"};
  EXPECT_EQ(flags.Pins(Framework::kFused).status().message(),
            "--grid micro-batch: 'x' is not a whole number");
}

TEST(TrainConfigFlags, PrecisionIsSpeltOutForTheFramework) {
  TrainConfigFlags flags;
  Parse(flags, {"--precision", "bf16-amp"});
  EXPECT_EQ(flags.Fields(Framework::kHfSdpa).at("param_dtype"), Json("fp32"));
  EXPECT_EQ(flags.Fields(Framework::kHfSdpa).at("compute_dtype"), Json("bf16"));
  GivenFields deepspeed = flags.Fields(Framework::kHfSdpaDeepspeed);
  EXPECT_EQ(deepspeed.at("param_dtype"), Json("bf16"));
  EXPECT_EQ(deepspeed.at("master_weights"), Json(true));
}

TEST(TrainConfigFlags, AFieldsOwnFlagWinsOverPrecision) {
  TrainConfigFlags flags;
  Parse(flags, {"--precision", "bf16", "--optimizer-state-dtype", "fp32"});
  EXPECT_EQ(flags.Fields(Framework::kFused).at("optimizer_state_dtype"), Json("fp32"));
  EXPECT_EQ(flags.Fields(Framework::kFused).at("param_dtype"), Json("bf16"));
}

TEST(TrainConfigFlags, TheMessageHoldsOnlyWhatWasGiven) {
  GivenFields fields = {{"zero.stage", 2}, {"micro_batch", 1}};
  TrainConfig config;
  ASSERT_TRUE(ApplyFields(fields, config).ok());
  v1::TrainConfig message;
  ToSparseProto(config, fields, message);
  v1::TrainConfig expected;
  expected.set_micro_batch(1);
  expected.mutable_zero()->set_stage(2);
  EXPECT_EQ(message.DebugString(), expected.DebugString());
}

TEST(WorkloadFlags, LandOnTopOfABase) {
  WorkloadFlags flags;
  Parse(flags, {"--seq-len", "256", "--framework", "hf-sdpa", "--lora.rank", "8"});
  Workload base;
  base.model.name = "tiny";
  base.world_size = 4;
  auto workload = flags.Apply(base);
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(workload->seq_len, 256);
  EXPECT_EQ(workload->framework, Framework::kHfSdpa);
  EXPECT_EQ(workload->lora.rank, 8);
  EXPECT_EQ(workload->world_size, 4);
  EXPECT_EQ(workload->model.name, "tiny");
}

TEST(WorkloadFlags, WhatTheLayoutOfSequencesDoesNotReadIsRefused) {
  auto message = [](std::vector<std::string> words, SequenceLayout of_base) {
    WorkloadFlags flags;
    Parse(flags, std::move(words));
    Workload base;
    base.sequences.layout = of_base;
    return std::string(flags.Apply(base).status().message());
  };
  const auto fixed = SequenceLayout::kFixed;
  EXPECT_EQ(message({"--sequences.mean-ratio", "0.4"}, fixed),
            "--sequences.mean-ratio says nothing of sequences whose layout is fixed: add "
            "--sequences.layout padded or packed, or leave it out");
  EXPECT_NE(message({"--sequences.min-tokens", "8"}, fixed), "");
  EXPECT_EQ(message({"--sequences.layout", "packed", "--sequences.order", "drawn"}, fixed),
            "--sequences.order says nothing of sequences whose layout is packed: add "
            "--sequences.layout padded, or leave it out");
  EXPECT_NE(message({"--sequences.pad-multiple", "8"}, SequenceLayout::kPacked), "");
  EXPECT_EQ(message({"--sequences.mean-ratio", "0.4"}, SequenceLayout::kPacked), "");
  EXPECT_EQ(message({"--sequences.order", "drawn"}, SequenceLayout::kPadded), "");
  EXPECT_EQ(message({"--sequences.layout", "fixed"}, SequenceLayout::kPadded), "");
}

TEST(WorkloadFlags, AnotherModelDropsTheBases) {
  WorkloadFlags flags;
  Parse(flags, {"--model", "llama2-7b"});
  Workload base;
  base.model.hidden = 64;
  EXPECT_EQ(flags.Apply(base)->model.hidden, 0);
}

TEST(CeilingFlags, TakeSizesAndRefuseTheRest) {
  CeilingFlags flags;
  Parse(flags, {"--memory", "1GiB", "--host-memory", "2GB"});
  v1::Ceiling ceiling;
  ASSERT_TRUE(flags.Apply(ceiling).ok());
  EXPECT_EQ(ceiling.capacity_bytes(), int64_t{1} << 30);
  EXPECT_EQ(ceiling.host_bytes(), 2'000'000'000);
  EXPECT_EQ(ceiling.device_bytes(), 0);
  flags.memory = "0";
  EXPECT_EQ(flags.Apply(ceiling).message(),
            "--memory: '0' is not over 0");
  EXPECT_EQ(flags.Apply(ceiling).code(), absl::StatusCode::kInvalidArgument);
  for (const char* small : {"64", "1.5", "1e5"}) {
    flags.memory = small;
    EXPECT_EQ(flags.Apply(ceiling).code(), absl::StatusCode::kInvalidArgument) << small;
  }
  for (const char* meant : {"64B", "64 bytes", "1048576"}) {
    flags.memory = meant;
    EXPECT_TRUE(flags.Apply(ceiling).ok()) << meant;
  }
  for (std::string large : {"99999999TiB", "1e400", "1e30"}) {
    flags.memory = large;
    EXPECT_EQ(flags.Apply(ceiling).message(), "--memory: '" + large + "' is too large");
  }
}

TEST(Budget, IsATimeOverZero) {
  EXPECT_EQ(*ParseBudget("60s"), 60);
  EXPECT_EQ(*ParseBudget("1.5m"), 90);
  for (const char* text : {"0", "0s", "-3s", "soon", ""}) {
    EXPECT_FALSE(ParseBudget(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hbmtune::client
