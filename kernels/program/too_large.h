#pragma once

#include <stdexcept>

namespace hbmtune {

// A tensor of more bytes than any device has (256 TiB): as a config it makes no sense, and whatever
// the device, it does not fit.
class TensorTooLarge : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace hbmtune
