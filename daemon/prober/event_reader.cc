#include "daemon/prober/event_reader.h"

#include <absl/strings/str_cat.h>
#include <google/protobuf/io/coded_stream.h>

namespace hbmtune::daemon {
namespace {

// The largest event is `finished`, some hundred bytes.
constexpr uint32_t kMaxEventBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::optional<v1::ProbeEvent>> EventReader::Next() {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(buffer_.data()),
                                               static_cast<int>(buffer_.size()));
  uint32_t size = 0;
  if (!input.ReadVarint32(&size)) {
    if (buffer_.size() >= 5) return absl::InvalidArgumentError("the probe's output is no event");
    return std::nullopt;
  }
  if (size > kMaxEventBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the probe sent an event of ", size, " bytes"));
  }
  const auto start = static_cast<size_t>(input.CurrentPosition());
  if (buffer_.size() < start + size) return std::nullopt;
  v1::ProbeEvent event;
  if (!event.ParseFromArray(buffer_.data() + start, static_cast<int>(size))) {
    return absl::InvalidArgumentError("the probe's output is no event");
  }
  buffer_.erase(0, start + size);
  return event;
}

}  // namespace hbmtune::daemon
