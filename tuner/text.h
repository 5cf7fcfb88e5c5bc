#pragma once

#include <absl/status/status.h>

#include <sstream>
#include <string>

namespace hbmtune::tuner {

// The parts in a row as operator<< writes them. (absl::StrCat of Debian 12 takes no
// std::string_view.)
template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  text.precision(12);
  (text << ... << parts);
  return text.str();
}

// InvalidArgument with the parts as its sentence.
template <class... Parts>
absl::Status Illegal(const Parts&... parts) {
  return absl::InvalidArgumentError(Text(parts...));
}

}  // namespace hbmtune::tuner
