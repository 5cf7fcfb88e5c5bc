#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "hbmtune/v1/tuning.pb.h"

namespace hbmtune::client {

// What --model names: a path (it has a slash, ends in .json or exists) to a config.json or to the
// folder of one, which is read here and sent as text; anything else is the name of a preset, which
// only the daemon knows. INVALID_ARGUMENT with a sentence: no such file (and the name in that
// folder that is nearest), no readable regular file, over 1 MiB, or not
// UTF-8.
absl::StatusOr<v1::ModelSource> ReadModel(const std::string& model);

}  // namespace hbmtune::client
