#include "daemon/services/memory_history.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "daemon/base/errors.h"
#include "daemon/services/requests.h"
#include "proto/convert.h"

namespace hbmtune::daemon {
namespace {

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

void SetTime(absl::Time time, google::protobuf::Timestamp& message) {
  const int64_t micros = absl::ToUnixMicros(time);
  message.set_seconds(micros / 1'000'000);
  message.set_nanos(static_cast<int32_t>(micros % 1'000'000 * 1000));
}

absl::StatusOr<int64_t> MinutesOnAPage(int32_t page_size) {
  constexpr int64_t kDay = 1440;
  constexpr int64_t kMost = 10'000;
  if (page_size < 0) return FieldError("page_size", "page_size must not be negative");
  return page_size == 0 ? kDay : std::min<int64_t>(page_size, kMost);
}

}  // namespace

// A page's token is the begin of the minute that comes next.
absl::Status ListMinutes(const Catalogue& catalogue, MemoryStore& store,
                         const v1::ListMemoryMinutesRequest& request,
                         v1::ListMemoryMinutesResponse& response) {
  auto device = catalogue.Find(request.device());
  if (!device.ok()) return device.status();
  auto size = MinutesOnAPage(request.page_size());
  if (!size.ok()) return size.status();
  auto token = ParsePageToken(request.page_token());
  if (!token.ok()) return token.status();
  absl::Time from = request.has_start_time() ? TimeOf(request.start_time()) : absl::UnixEpoch();
  if (*token > 0) from = absl::FromUnixMicros(*token);
  constexpr int64_t kLastYear = 9999;
  const absl::Time end = request.has_end_time()
                             ? TimeOf(request.end_time())
                             : absl::FromCivil(absl::CivilYear(kLastYear), absl::UTCTimeZone());
  auto minutes = store.Minutes(device->name, from, end, *size + 1);
  if (!minutes.ok()) return minutes.status();
  if (static_cast<int64_t>(minutes->size()) > *size) {
    response.set_next_page_token(absl::StrCat(absl::ToUnixMicros(minutes->back().start)));
    minutes->pop_back();
  }
  for (const StoredMinute& minute : *minutes) {
    v1::MemoryMinute& message = *response.add_minutes();
    SetTime(minute.start, *message.mutable_start_time());
    message.set_least_bytes(minute.least_bytes);
    message.set_mean_bytes(minute.mean_bytes);
    message.set_most_bytes(minute.most_bytes);
  }
  return absl::OkStatus();
}

absl::Status ListFindings(const Catalogue& catalogue, MemoryStore& store,
                          const v1::ListFindingsRequest& request,
                          v1::ListFindingsResponse& response) {
  std::string name;
  if (!request.device().empty()) {
    auto device = catalogue.Find(request.device());
    if (!device.ok()) return device.status();
    name = device->name;
  }
  auto size = ParsePageSize(request.page_size());
  if (!size.ok()) return size.status();
  auto before = ParsePageToken(request.page_token());
  if (!before.ok()) return before.status();
  auto findings = store.Findings(name, *before, *size + 1);
  if (!findings.ok()) return findings.status();
  const bool more = static_cast<int64_t>(findings->size()) > *size;
  if (more) findings->pop_back();
  for (const StoredFinding& found : *findings) {
    v1::StoredFinding& message = *response.add_findings();
    SetTime(found.time, *message.mutable_time());
    message.set_device(found.device);
    message.set_job_id(found.job_id);
    ToProto(found.finding, *message.mutable_finding());
  }
  if (more) response.set_next_page_token(absl::StrCat(findings->back().id));
  return absl::OkStatus();
}

}  // namespace hbmtune::daemon
