#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/visit.h"
#include "kernels/device/profile.h"

namespace hbmtune::daemon {

enum class DeviceKind : uint8_t { kHost, kGpu, kModel };

}  // namespace hbmtune::daemon

template <>
struct hbmtune::EnumNames<hbmtune::daemon::DeviceKind> {
  static constexpr std::array<std::string_view, 3> kNames = {"HOST", "GPU", "MODEL"};
};

namespace hbmtune::daemon {

// What a device is, not what happens on it.
struct DeviceInfo {
  std::string name;  // canonical: "host", "model:mi210"
  DeviceKind kind = DeviceKind::kHost;
  int64_t memory_bytes = 0;  // all of it; the node's RAM for `host`
  device::DeviceProfile profile;
};

// The devices that this node can tune for.
class Catalogue {
 public:
  // `profile_directory`: profiles of this node's own, which go before the embedded ones; may be
  // empty.
  explicit Catalogue(std::string profile_directory = "")
      : profile_directory_(std::move(profile_directory)) {}

  // `host` first, then modelled devices by name.
  std::vector<DeviceInfo> List() const;
  // NOT_FOUND names the nearest device there is.
  absl::StatusOr<DeviceInfo> Find(const std::string& name) const;

 private:
  std::string profile_directory_;
};

// Bytes of RAM of this node.
int64_t NodeMemoryBytes();

}  // namespace hbmtune::daemon
