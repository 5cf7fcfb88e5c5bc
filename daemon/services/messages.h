#pragma once

#include <absl/time/time.h>

#include "daemon/devices/catalogue.h"
#include "daemon/studies/event_hub.h"
#include "daemon/studies/manager.h"
#include "daemon/studies/recommender.h"
#include "daemon/studies/study.h"
#include "hbmtune/v1/devices.pb.h"
#include "hbmtune/v1/tuning.pb.h"

// The daemon's own structs as messages.
namespace hbmtune::daemon {

// `now`: for the time that a running study has spent.
void ToMessage(const StudyRecord& study, absl::Time now, v1::Study& message);
// `framework`: the study's, which decides what a measurement is evidence of.
void ToMessage(const TrialRecord& trial, Framework framework, v1::Trial& message);
void ToMessage(const StudyEvent& event, absl::Time now, v1::StudyEvent& message);
void ToMessage(const Advice& advice, v1::Recommendation& message);
void ToMessage(const DeviceInfo& device, const StudyManager::Load& load,
               const DeviceArbiter::DeviceView& view, v1::Device& message);
v1::DeviceState StateOf(const DeviceArbiter::DeviceView& view, bool running);

}  // namespace hbmtune::daemon
