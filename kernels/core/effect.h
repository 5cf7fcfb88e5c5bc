#pragma once

#include <cstdint>
#include <string>

#include "kernels/core/visit.h"

namespace hbmtune {

// What one tunable, changed alone, does to a config.
struct Effect {
  std::string tunable;
  std::string change;
  int64_t saved_bytes = 0;
  double cost_ratio = 0;
  int64_t host_bytes = 0;
  bool fits = false;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"tunable", "path of the field, or precision"}, self.tunable);
    v(Field{"change", "its new value, and what must change along"}, self.change);
    v(Field{"saved_bytes", "device memory that it saves; negative: it takes more"},
      self.saved_bytes);
    v(Field{"cost_ratio", "more time a token, as a share; negative is faster"}, self.cost_ratio);
    v(Field{"host_bytes", "host memory that it takes"}, self.host_bytes);
    v(Field{"fits", "the config would fit"}, self.fits);
  }
};

}  // namespace hbmtune
