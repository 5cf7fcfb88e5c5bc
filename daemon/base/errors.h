#pragma once

#include <absl/status/status.h>
#include <absl/time/time.h>

#include <map>
#include <string>
#include <vector>

// What an absl::Status says beside its code and sentence, so that the services can make
// google.rpc details of it. Rooms below the services know nothing of protobuf.
namespace hbmtune::daemon {

struct FieldViolation {
  std::string field;        // "workload.seq_len"
  std::string description;  // a sentence
};

using Metadata = std::map<std::string, std::string>;

// INVALID_ARGUMENT about one field of a request.
absl::Status FieldError(const std::string& field, const std::string& description);
// The same with what another room said: its code is dropped, its sentence kept.
absl::Status FieldError(const std::string& field, const absl::Status& cause);
std::vector<FieldViolation> FieldViolations(const absl::Status& status);

// A reason in capitals that programs can act on, and what it is about.
void SetReason(absl::Status& status, const std::string& reason, const Metadata& metadata = {});
absl::Status WithReason(absl::Status status, const std::string& reason,
                        const Metadata& metadata = {});
// When the same request may be made again.
absl::Status WithRetry(absl::Status status, absl::Duration wait);
// Zero if the status does not say.
absl::Duration RetryOf(const absl::Status& status);
// Empty if there is none.
std::string ReasonOf(const absl::Status& status);
Metadata MetadataOf(const absl::Status& status);

}  // namespace hbmtune::daemon
