#include "daemon/base/errors.h"

#include <absl/strings/cord.h>

#include <nlohmann/json.hpp>

namespace hbmtune::daemon {
namespace {

constexpr char kFields[] = "hbmtune/fields";
constexpr char kReason[] = "hbmtune/reason";
constexpr char kRetry[] = "hbmtune/retry";

nlohmann::json Payload(const absl::Status& status, const char* url) {
  auto payload = status.GetPayload(url);
  return payload ? nlohmann::json::parse(std::string(*payload)) : nlohmann::json();
}

void SetPayload(absl::Status& status, const char* url, const nlohmann::json& json) {
  status.SetPayload(
      url, absl::Cord(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

}  // namespace

absl::Status FieldError(const std::string& field, const std::string& description) {
  absl::Status status = absl::InvalidArgumentError(description);
  SetPayload(status, kFields, {{{"field", field}, {"description", description}}});
  return status;
}

absl::Status FieldError(const std::string& field, const absl::Status& cause) {
  return FieldError(field, std::string(cause.message()));
}

std::vector<FieldViolation> FieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  for (const auto& entry : Payload(status, kFields)) {
    violations.push_back({entry.at("field"), entry.at("description")});
  }
  return violations;
}

void SetReason(absl::Status& status, const std::string& reason, const Metadata& metadata) {
  SetPayload(status, kReason, {{"reason", reason}, {"metadata", metadata}});
}

absl::Status WithReason(absl::Status status, const std::string& reason,
                        const Metadata& metadata) {
  if (!status.ok()) SetReason(status, reason, metadata);
  return status;
}

absl::Status WithRetry(absl::Status status, absl::Duration wait) {
  if (!status.ok()) SetPayload(status, kRetry, absl::ToDoubleSeconds(wait));
  return status;
}

absl::Duration RetryOf(const absl::Status& status) {
  const nlohmann::json json = Payload(status, kRetry);
  return json.is_number() ? absl::Seconds(json.get<double>()) : absl::ZeroDuration();
}

std::string ReasonOf(const absl::Status& status) {
  nlohmann::json json = Payload(status, kReason);
  return json.is_object() ? json.at("reason").get<std::string>() : "";
}

Metadata MetadataOf(const absl::Status& status) {
  nlohmann::json json = Payload(status, kReason);
  return json.is_object() ? json.at("metadata").get<Metadata>() : Metadata{};
}

}  // namespace hbmtune::daemon
