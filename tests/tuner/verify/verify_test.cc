#include "tuner/verify/verify.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernels/core/json.h"

namespace hbmtune::tuner {
namespace {

Json Load(const std::string& name) {
  std::ifstream file(std::string(HBMTUNE_TEST_DATA) + "/" + name);
  return Json::parse(file);
}

TEST(Verify, RecordingsOfTransformersAreEqual) {
  int compared = 0, same = 0;
  for (const char* name : {"hf/llama.json", "hf/falcon.json", "hf/gpt2.json", "hf/ddp.json"}) {
    const Json whole = Load(name);
    for (const Json& run : whole["runs"]) {
      // With fp16 the recorder's device once answered that a gradient had overflowed: no step.
      if (run["spec"]["precision"] == "amp_fp16") continue;
      auto result = Verify(run.dump());
      ASSERT_TRUE(result.ok()) << run["name"] << ": " << result.status();
      EXPECT_LE(result->worst_ratio, 0.03) << run["name"] << " in " << result->worst_phase;
      EXPECT_EQ(result->same_events, !result->first_difference.has_value());
      ++compared;
      same += result->same_events;
    }
  }
  EXPECT_GT(compared, 60);
  EXPECT_GE(same, 0.9 * compared);
}

TEST(Verify, RecordingsOfDeepspeedAreEqualInTheirPeaks) {
  int compared = 0;
  const Json whole = Load("deepspeed/zero2.json");
  for (const Json& run : whole["runs"]) {
    auto result = Verify(run.dump());
    ASSERT_TRUE(result.ok()) << run["name"] << ": " << result.status();
    EXPECT_LE(result->worst_ratio, 0.08) << run["name"];
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

// A run whose events are the same, and the place of an allocation in its backward pass.
struct Place {
  Json run;
  size_t phase = 0;
  size_t event = 0;
};
Place FindPlace() {
  const Json whole = Load("hf/llama.json");
  for (const Json& run : whole["runs"]) {
    auto result = Verify(run.dump());
    if (!result.ok() || !result->same_events) continue;
    for (size_t p = 0; p < run["phases"].size(); ++p) {
      if (run["phases"][p]["name"] != "backward") continue;
      const Json& events = run["phases"][p]["events"];
      for (size_t e = 10; e < events.size(); ++e) {
        if (events[e][0] > 10'000) return {run, p, e};
      }
    }
  }
  return {};
}

TEST(Verify, NamesTheFirstEventThatDiffers) {
  Place place = FindPlace();
  ASSERT_FALSE(place.run.is_null());
  Json& phase = place.run["phases"][place.phase];
  Json& event = phase["events"][place.event];
  const int64_t true_bytes = event[0];
  event[0] = true_bytes + 512;
  auto result = Verify(place.run.dump());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->same_events);
  ASSERT_TRUE(result->first_difference.has_value());
  EXPECT_EQ(result->first_difference->phase, "backward");
  EXPECT_EQ(result->first_difference->step, phase["step"].get<int64_t>());
  EXPECT_EQ(result->first_difference->event, static_cast<int64_t>(place.event));
  EXPECT_EQ(result->first_difference->recorded_bytes, true_bytes + 512);
  EXPECT_EQ(result->first_difference->expected_bytes, true_bytes);
  EXPECT_FALSE(result->first_difference->recorded_op.empty());
  EXPECT_FALSE(result->first_difference->expected_op.empty());
}

TEST(Verify, SeesAnEventTooFewAndAPeakTooHigh) {
  Place place = FindPlace();
  ASSERT_FALSE(place.run.is_null());
  Json fewer = place.run;
  fewer["phases"][place.phase]["events"].erase(place.event);
  auto result = Verify(fewer.dump());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->first_difference->event, static_cast<int64_t>(place.event));
  EXPECT_EQ(result->recorded_events, result->expected_events - 1);
  Json larger = place.run;
  for (Json& event : larger["phases"][place.phase]["events"]) {
    if (event[0] > 0) event[0] = event[0].get<int64_t>() * 3;
  }
  EXPECT_GT(Verify(larger.dump())->worst_ratio, 0.03);
}

TEST(Verify, RefusesWhatIsNoRecording) {
  const Json run = Load("hf/llama.json")["runs"][0];
  EXPECT_EQ(Verify("{").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Verify("[1, 2]").status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* key : {"name", "spec", "config", "ops", "phases", "categories"}) {
    Json without = run;
    without.erase(key);
    const absl::Status status = Verify(without.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_NE(status.message().find(key), std::string::npos) << status;
    Json other = run;
    other[key] = 7;
    EXPECT_EQ(Verify(other.dump()).status().code(), absl::StatusCode::kInvalidArgument) << key;
  }
  Json wild = run;
  wild["phases"][0]["events"][0] = {512, 999'999, 0};
  EXPECT_EQ(Verify(wild.dump()).status().code(), absl::StatusCode::kInvalidArgument);
  wild["phases"][0]["events"][0] = {512, 0, int64_t{1} << 60};
  EXPECT_EQ(Verify(wild.dump()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Verify, RefusesWordsThatItDoesNotKnowAndNamesThoseThatItDoes) {
  const Json run = Load("hf/ddp.json")["runs"][0];
  ASSERT_TRUE(Verify(run.dump()).ok());
  const std::pair<const char*, const char*> kWords[] = {
      {"attention", "is not eager or sdpa"},
      {"checkpoint", "is not none, reentrant or non_reentrant"},
      {"lora", "is not none, qv or all"},
      {"optimizer", "is not adamw_foreach, adamw_loop or adamw_fused"},
      {"groups", "is not trainer or one"},
      {"ddp", "is not none, copy or view"},
      {"precision", "is not fp32, bf16, amp_bf16 or amp_fp16"}};
  for (const auto& [key, allowed] : kWords) {
    Json other = run;
    other["spec"][key] = "flash\x1b[2J";
    const std::string said(Verify(other.dump()).status().message());
    EXPECT_NE(said.find(std::string("the recording's ") + key + " \"flash\\u001b[2J\" " + allowed),
              std::string::npos) << said;
  }
  Json zero = Load("deepspeed/zero2.json")["runs"][0];
  zero["spec"]["dtype"] = "fp8";
  EXPECT_NE(Verify(zero.dump()).status().message().find("\"fp8\" is not bf16 or fp16"),
            std::string::npos) << Verify(zero.dump()).status();
}

// Whatever stands in the place of whatever, the sentence is ours and not that of a library.
TEST(Verify, SaysItInOurWords) {
  for (const char* file : {"hf/ddp.json", "deepspeed/zero2.json"}) {
    const Json run = Load(file)["runs"][0];
    std::vector<Json::json_pointer> places;
    for (const char* root : {"", "/spec", "/spec/model", "/config", "/phases/0", "/categories"}) {
      const Json::json_pointer parent{std::string(root)};
      if (!run.contains(parent)) continue;
      for (const auto& [key, value] : run[parent].items()) places.push_back(parent / key);
    }
    places.emplace_back("/phases/0/events/0");
    places.emplace_back("/categories/parameter/0");
    for (const Json::json_pointer& place : places) {
      for (const Json& odd :
           {Json(nullptr), Json("x"), Json::array({-1}), Json::object({{"a", 1}})}) {
        Json other = run;
        other[place] = odd;
        const absl::Status status = Verify(other.dump()).status();
        const std::string said(status.message());
        EXPECT_EQ(said.find("json.exception"), std::string::npos) << place.to_string() << said;
        EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << place.to_string() << said;
      }
    }
  }
}

}  // namespace
}  // namespace hbmtune::tuner
