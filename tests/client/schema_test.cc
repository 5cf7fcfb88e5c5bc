#include "kernels/core/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/output_json.h"
#include "proto/convert.h"

namespace hbmtune::client {
namespace {

// The fields that programs are promised.
TEST(Schema, EstimateHasThePromisedFields) {
  Json required = DocumentSchema<EstimateOutput>("estimate")["required"];
  for (const char* field :
       {"fits", "peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes", "peak_phase",
        "breakdown", "host_bytes", "step_seconds", "tokens_per_second", "evidence", "interval"}) {
    EXPECT_THAT(required, ::testing::Contains(Json(field)));
  }
}

TEST(Schema, RecommendationHasThePromisedFields) {
  Json schema = DocumentSchema<RecommendationOutput>("tune");
  for (const char* field : {"train_config", "measurement", "estimate", "evidence", "study",
                            "trials"}) {
    EXPECT_TRUE(schema["properties"].contains(field)) << field;
  }
}

// The output structs are filled from messages by field name: a name that drifts throws here.
TEST(Schema, OutputsAgreeWithTheirMessages) {
  EXPECT_NO_THROW(FromProto<CandidateOutput>(v1::Candidate()));
  EXPECT_NO_THROW(FromProto<CeilingOutput>(v1::Ceiling()));
  EXPECT_NO_THROW(FromProto<ShortfallOutput>(v1::Shortfall()));
  EXPECT_NO_THROW(FromProto<HintOutput>(v1::Hint()));
  EXPECT_NO_THROW(FromProto<SpaceOutput>(v1::SpaceSummary()));
  EXPECT_NO_THROW(FromProto<ProgressOutput>(v1::Progress()));
}

TEST(Output, ARecommendationCarriesItsBest) {
  v1::Recommendation message;
  message.set_study("studies/7");
  message.set_trials(3);
  message.mutable_best()->mutable_train_config()->set_micro_batch(4);
  message.mutable_best()->mutable_measurement()->set_tokens_per_second(10);
  message.mutable_best()->set_evidence(v1::EVIDENCE_MEASURED);
  Json json = ToJson(ToOutput(message));
  EXPECT_EQ(json["study"], "studies/7");
  EXPECT_EQ(json["trials"], 3);
  EXPECT_EQ(json["train_config"]["micro_batch"], 4);
  EXPECT_EQ(json["measurement"]["tokens_per_second"], 10);
  EXPECT_EQ(json["evidence"], "MEASURED");
  EXPECT_FALSE(json.contains("estimate"));
  EXPECT_FALSE(json.contains("shortfall"));
}

TEST(Output, NothingFitsHasAShortfallAndNoConfig) {
  v1::Recommendation message;
  message.mutable_shortfall()->set_message("nothing fits in 1 GiB");
  message.mutable_shortfall()->add_hints()->set_change("zero.stage=2");
  Json json = ToJson(ToOutput(message));
  EXPECT_FALSE(json.contains("train_config"));
  EXPECT_EQ(json["shortfall"]["hints"][0]["change"], "zero.stage=2");
}

TEST(Output, StatesAreSmallWords) {
  EXPECT_EQ(StateName(v1::STUDY_STATE_CANCELLED), "cancelled");
  EXPECT_EQ(StateName(v1::TRIAL_STATE_FINISHED), "finished");
  EXPECT_EQ(StateName(v1::DEVICE_STATE_IDLE), "idle");
}

}  // namespace
}  // namespace hbmtune::client
