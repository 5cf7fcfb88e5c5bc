#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "daemon/devices/catalogue.h"
#include "daemon/studies/study.h"
#include "hbmtune/v1/tuning.pb.h"

// Requests as the daemon's own structs. Errors are INVALID_ARGUMENT or NOT_FOUND with the field.
namespace hbmtune::daemon {

// INVALID_ARGUMENT if an enum anywhere in the message has a value that this daemon does not know.
absl::Status CheckEnums(const google::protobuf::Message& message);

// The workload with its model filled in from `source`, when that is set.
absl::StatusOr<Workload> ParseWorkload(const v1::Workload& message, const v1::ModelSource& source);
absl::StatusOr<StudySpec> ParseStudySpec(const v1::CreateStudyRequest& request);
// What the request leaves unset is what the framework does by itself; accumulation follows from
// the global batch.
absl::StatusOr<TrainConfig> ParseTrainConfig(const v1::TrainConfig& message,
                                             const Workload& workload, bool host);

// The same, legal or not.
TrainConfig UncheckedTrainConfig(const v1::TrainConfig& message, const Workload& workload,
                                 bool host);

absl::StatusOr<int64_t> ParseStudy(const std::string& name);  // FieldError("name")

// Between 1 and 1000; 100 for 0.
absl::StatusOr<int64_t> ParsePageSize(int32_t page_size);
// 0 for the first page.
absl::StatusOr<int64_t> ParsePageToken(const std::string& token);

}  // namespace hbmtune::daemon
