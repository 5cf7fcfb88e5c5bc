#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/connection.h"

// Which devices `compare` compares, and what they cost.
namespace hbmtune::client {

// A device that is compared, and its study once there is one.
struct Compared {
  v1::Device device;
  std::optional<double> dollars_per_hour;
  absl::Status refusal;
  v1::Study study;
};

// The modelled devices of a daemon, by name.
using Profiles = std::map<std::string, v1::Device>;
absl::StatusOr<Profiles> ListProfiles(const Connection& connection);

// Those that are named ("mi300x" or "model:mi300x"), each once; without any, every GPU's.
absl::StatusOr<std::vector<Compared>> Choose(const std::vector<std::string>& names,
                                             const Profiles& profiles);

// "mi300x=2.40" → "model:mi300x" and dollars an hour, over 0.
absl::StatusOr<std::pair<std::string, double>> ParsePrice(const std::string& text);

// Gives the devices their prices; one that is not compared, or has one already, is refused.
absl::Status SetPrices(const std::vector<std::string>& prices, std::vector<Compared>& compared);

}  // namespace hbmtune::client
