#include "kernels/core/schema.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"

namespace hbmtune {
namespace {

// The part of JSON Schema that DocumentSchema uses. Returns what is wrong, or "".
std::string Check(const Json& schema, const Json& value, const std::string& at = "");

std::string CheckObject(const Json& schema, const Json& value, const std::string& at) {
  for (const Json& key : schema["required"]) {
    if (!value.contains(key.get<std::string>())) return at + ": no " + key.get<std::string>();
  }
  for (const auto& [key, item] : value.items()) {
    if (!schema["properties"].contains(key)) return at + ": additional " + key;
    std::string error = Check(schema["properties"][key], item, at + "." + key);
    if (!error.empty()) return error;
  }
  return "";
}

std::string Check(const Json& schema, const Json& value, const std::string& at) {
  const std::string type = schema["type"];
  bool right = type == "object"    ? value.is_object()
               : type == "array"   ? value.is_array()
               : type == "boolean" ? value.is_boolean()
               : type == "integer" ? value.is_number_integer()
               : type == "number"  ? value.is_number()
                                   : value.is_string();
  if (!right) return at + ": not of type " + type;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return at + ": not in the enum";
  }
  if (type == "object") return CheckObject(schema, value, at);
  if (type == "array") {
    for (const Json& item : value) {
      std::string error = Check(schema["items"], item, at + "[]");
      if (!error.empty()) return error;
    }
  }
  return "";
}

struct Report {
  TrainConfig train_config;
  std::optional<Measurement> measurement;
  std::vector<CategoryBytes> breakdown = {{Category::kLogits, 7}};

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the choice"}, self.train_config);
    v(Field{"measurement", "the result"}, self.measurement);
    v(Field{"breakdown", "the owners"}, self.breakdown);
  }
};

TEST(Schema, AcceptsWhatIsWritten) {
  Json schema = DocumentSchema<Report>("report");
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["title"], "report");
  Report report;
  EXPECT_EQ(Check(schema, ToJson(report)), "");
  report.measurement.emplace().outcome = Outcome::kOutOfMemory;
  EXPECT_EQ(Check(schema, ToJson(report)), "");
  EXPECT_EQ(Check(DocumentSchema<Workload>("workload"), ToJson(Workload{})), "");
}

TEST(Schema, RejectsWhatIsNot) {
  Json schema = DocumentSchema<Report>("report");
  Json good = ToJson(Report{});
  Json bad = good;
  bad["train_config"]["zero"]["stage"] = "two";
  EXPECT_EQ(Check(schema, bad), ".train_config.zero.stage: not of type integer");
  bad = good;
  bad["train_config"]["param_dtype"] = "fp8";
  EXPECT_EQ(Check(schema, bad), ".train_config.param_dtype: not in the enum");
  bad = good;
  bad["train_config"].erase("micro_batch");
  EXPECT_EQ(Check(schema, bad), ".train_config: no micro_batch");
  bad = good;
  bad["breakdown"][0]["owner"] = 1;
  EXPECT_EQ(Check(schema, bad), ".breakdown[]: additional owner");
}

TEST(Schema, CarriesTheHelp) {
  Json schema = DocumentSchema<TrainConfig>("train config");
  EXPECT_EQ(schema["properties"]["zero"]["properties"]["stage"]["description"],
            "what is partitioned over the ranks: 1 optimizer, 2 gradients, 3 weights");
}

TEST(Schema, DoesNotRequireOptionalFields) {
  Json schema = SchemaOf<Report>();
  EXPECT_EQ(schema["required"], Json({"train_config", "breakdown"}));
  EXPECT_TRUE(schema["properties"].contains("measurement"));
}

}  // namespace
}  // namespace hbmtune
