#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>

#include "hbmtune/v1/probe.pb.h"

namespace hbmtune::daemon {

// Takes a probe's stdout in whatever pieces it comes and gives back its events.
class EventReader {
 public:
  void Append(std::string_view bytes) { buffer_ += bytes; }
  // The next whole event; nothing when more bytes are needed; INVALID_ARGUMENT for what is no
  // event (the rest of the stream is then worthless).
  absl::StatusOr<std::optional<v1::ProbeEvent>> Next();

 private:
  std::string buffer_;
};

}  // namespace hbmtune::daemon
