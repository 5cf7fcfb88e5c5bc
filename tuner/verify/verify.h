#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "kernels/core/json.h"
#include "kernels/core/verification.h"
#include "kernels/program/program.h"
#include "tuner/verify/recording.h"

namespace hbmtune::tuner {

// Compares one recorded run (README.md has the format) with the Program that an estimate of it is
// a dry run of. INVALID_ARGUMENT names what is wrong with the recording, or what of it has no
// lowering. A pure function; any thread.
absl::StatusOr<Verification> Verify(const std::string& recording_json);
absl::StatusOr<Verification> VerifyRun(const Json& recording);  // parsed already
// The comparison alone, with any Program.
Verification VerifyProgram(const Recording& recording, const Program& program);

}  // namespace hbmtune::tuner
