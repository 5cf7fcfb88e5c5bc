#include "client/job.h"

#include <cstdlib>

namespace hbmtune::client {
namespace {

constexpr const char* kVariables[] = {"SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"};

}  // namespace

void JobFlag::AddTo(CLI::App& app, const std::string& help, const std::string& group) {
  std::string usual;
  for (const char* variable : kVariables) {
    usual += (usual.empty() ? "$" : ", $") + std::string(variable);
  }
  app.add_option("--job", job, help + " [" + usual + "]")->type_name("ID")->group(group);
}

std::string JobFlag::OrEnvironment() const {
  if (!job.empty()) return job;
  for (const char* variable : kVariables) {
    if (const char* value = std::getenv(variable); value != nullptr && *value != 0) return value;
  }
  return "";
}

}  // namespace hbmtune::client
