#pragma once

#include <prometheus/collectable.h>

#include <vector>

#include "daemon/smi/smi_feed.h"

namespace hbmtune::daemon {

// What the SMI library gave last, by PCI address, and whether it gives anything.
class SmiMetrics final : public prometheus::Collectable {
 public:
  explicit SmiMetrics(const SmiFeed& feed) : feed_(feed) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const SmiFeed& feed_;
};

}  // namespace hbmtune::daemon
