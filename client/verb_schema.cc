#include <memory>

#include "client/compare_output.h"
#include "client/flags.h"
#include "client/ladder_output.h"
#include "client/output_json.h"
#include "client/sweep_output.h"
#include "client/timeline_output.h"
#include "client/verbs.h"
#include "client/verify_output.h"
#include "kernels/core/schema.h"

namespace hbmtune::client {
namespace {

struct Schema {
  std::string verb;
  Json (*make)(std::string_view title);
};

const std::vector<Schema> kSchemas = {
    {"estimate", DocumentSchema<EstimateOutput>},
    {"timeline", DocumentSchema<TimelineOutput>},
    {"sweep", DocumentSchema<SweepOutput>},
    {"ladder", DocumentSchema<LadderOutput>},
    {"verify", DocumentSchema<VerifyOutput>},
    {"tune", DocumentSchema<RecommendationOutput>},
    {"compare", DocumentSchema<CompareOutput>},
    {"recommend", DocumentSchema<RecommendationOutput>},
    {"show", DocumentSchema<ShowOutput>},
    {"studies", DocumentSchema<std::vector<StudyOutput>>},
    {"devices", DocumentSchema<std::vector<DeviceOutput>>},
    {"lease", DocumentSchema<LeaseOutput>},
};

}  // namespace

void AddSchema(CLI::App& app, Invocation& invocation) {
  CLI::App* verb =
      app.add_subcommand("schema", "print the JSON schema of what a verb's --output json prints");
  verb->footer("examples\n  hbmtune schema estimate > estimate.schema.json");
  auto name = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const Schema& schema : kSchemas) names.push_back(schema.verb);
  AddChoice(*verb, "VERB", names, "the verb", *name)->required()->group("arguments");
  verb->callback([name, &invocation] {
    invocation.run = [name]() -> absl::StatusOr<ExitCode> {
      for (const Schema& schema : kSchemas) {
        if (schema.verb == *name) PrintJson(schema.make("hbmtune " + *name));
      }
      return kDone;
    };
  });
}

}  // namespace hbmtune::client
