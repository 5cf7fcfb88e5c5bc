#pragma once

#include <string>

#include "client/request_flags.h"

namespace hbmtune::client {

// What is searched, and how: all of a study but its device.
struct StudyFlags {
  WorkloadFlags workload;
  CeilingFlags ceiling;
  PinFlags pinned;
  std::string budget;
  std::string designer = "bracket";
  int64_t max_trials = 0;
  int64_t seed = 0;

  static constexpr const char* kSearchGroup = "how it is searched";

  // --budget, --max-trials, --designer, --seed; the other flags are added each by itself.
  void AddSearchTo(CLI::App& app, const std::string& budget_help);

  // A study of that device with an id of its own, so that one that is sent twice is one study.
  absl::StatusOr<v1::CreateStudyRequest> Request(const std::string& device) const;
};

}  // namespace hbmtune::client
