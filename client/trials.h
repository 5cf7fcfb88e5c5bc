#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "client/connection.h"

namespace hbmtune::client {

// All trials of a study, oldest first.
absl::StatusOr<std::vector<v1::Trial>> ListTrials(const Connection& connection,
                                                  const std::string& study);

// The trial of that number ("3"); NOT_FOUND says which there are.
absl::StatusOr<v1::Trial> FindTrial(const Connection& connection, const std::string& study,
                                    const std::string& number);

}  // namespace hbmtune::client
