#pragma once

#include <string>

#include "client/output_json.h"
#include "client/terminal.h"
#include "hbmtune/v1/devices.pb.h"
#include "hbmtune/v1/tuning.pb.h"

// What people read at the start and the end of a study, and of an estimate.
namespace hbmtune::client {

// "study 7  llama2-13b · …" and "device   …".
void PrintHeader(Terminal& terminal, const v1::Study& study, const v1::Device& device);

// The recommended config beside its figures, the runners-up, and why it is not better; or, when
// nothing fits, the least that would, by owner.
void PrintRecommendation(Terminal& terminal, const RecommendationOutput& recommendation);

// Memory by owner as bars, the peaks, the step time and whether it fits.
void PrintEstimate(Terminal& terminal, const EstimateOutput& estimate);

}  // namespace hbmtune::client
