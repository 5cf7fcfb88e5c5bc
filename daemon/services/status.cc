#include "daemon/services/status.h"

#include <absl/strings/str_cat.h>

#include <string>

#include "daemon/base/errors.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace hbmtune::daemon {

std::string Spelt(const std::string& text) {
  std::string spelt;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : 0;
    const bool second = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // UTF-8 of U+0080 to U+009F
    if (byte >= 0x20 && byte != 0x7f && !second) {
      spelt += text[i];
      continue;
    }
    absl::StrAppend(&spelt, "\\x", absl::Hex(second ? next : byte, absl::kZeroPad2));
    i += second;
  }
  return spelt;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // absl and gRPC share the numbers of the codes.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Spelt(std::string(status.message())));

  google::rpc::BadRequest bad_request;
  for (const FieldViolation& violation : FieldViolations(status)) {
    auto* entry = bad_request.add_field_violations();
    entry->set_field(Spelt(violation.field));
    entry->set_description(Spelt(violation.description));
  }
  if (bad_request.field_violations_size() > 0) details.add_details()->PackFrom(bad_request);

  std::string reason = ReasonOf(status);
  if (reason.empty() && absl::IsResourceExhausted(status)) reason = "STORE_DEGRADED";
  if (!reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("hbmtune");
    for (const auto& [key, value] : MetadataOf(status)) (*info.mutable_metadata())[key] = value;
    details.add_details()->PackFrom(info);
  }
  if (const absl::Duration wait = RetryOf(status); wait > absl::ZeroDuration()) {
    constexpr int64_t kNanoseconds = 1'000'000'000;
    const int64_t nanoseconds = absl::ToInt64Nanoseconds(wait);
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(nanoseconds / kNanoseconds);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanoseconds % kNanoseconds));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(code, details.message(), details.SerializeAsString());
}

}  // namespace hbmtune::daemon
