#pragma once

#include <absl/status/statusor.h>

#include "daemon/devices/catalogue.h"
#include "daemon/studies/study.h"
#include "tuner/search/history.h"
#include "tuner/space/space.h"

namespace hbmtune::daemon {

// A study's question, checked and made ready: what its space is and what an estimate is.
struct StudyPlan {
  DeviceInfo device;
  Ceiling ceiling;  // with capacity filled in where the device has none of its own
  tuner::Space space;

  tuner::DeviceFacts facts() const { return {device.kind == DeviceKind::kHost}; }
  bool modelled() const { return device.kind == DeviceKind::kModel; }
  // What the modelled device says of a config of this space. A pure function; any thread.
  tuner::Estimator MakeEstimator() const;
};

// INVALID_ARGUMENT or NOT_FOUND, with the field of the request that is wrong.
absl::StatusOr<StudyPlan> MakePlan(const StudySpec& spec, const Catalogue& catalogue);

// The ceiling with the capacity of a budgeted device filled in: half of the node's RAM on `host`
// unless the caller says. INVALID_ARGUMENT if it is negative or more than there is.
absl::StatusOr<Ceiling> ResolveCeiling(const Ceiling& ceiling, const DeviceInfo& device);

// Finished trials as the tuner wants them, oldest first.
tuner::History HistoryOf(const std::vector<TrialRecord>& trials);

}  // namespace hbmtune::daemon
