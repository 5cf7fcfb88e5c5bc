#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
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

// A process with memory on a GPU.
struct DeviceProcess {
  int64_t pid = 0;
  int64_t memory_bytes = 0;
  std::string program;  // empty if it cannot be read
};

// What a device is, and who has memory on it.
struct DeviceInfo {
  std::string name;  // canonical: "host", "0000:03:00.0", "model:mi210"
  std::vector<std::string> aliases;
  DeviceKind kind = DeviceKind::kHost;
  std::string product;       // for people
  int64_t memory_bytes = 0;  // all of it; the node's RAM for `host`; 0 where it cannot be read
  std::optional<int64_t> used_bytes;
  std::vector<DeviceProcess> processes;  // most memory first
  std::string unique_id;     // of a GPU, 16 hexadecimal digits; empty if the driver tells none
  bool partitioned = false;  // a partition of a GPU, or a GPU that is cut into some
  // Of a GPU: its product's, with the memory that the driver tells; empty where there is none.
  device::DeviceProfile profile;
};

// The devices that this node can tune for.
class Catalogue {
 public:
  using GpuLister = std::function<std::vector<DeviceInfo>()>;  // any thread

  // `profile_directory`: profiles of this node's own, which go before the embedded ones; may be
  // empty.
  explicit Catalogue(std::string profile_directory = "",
                     GpuLister gpus = [] { return std::vector<DeviceInfo>(); })
      : profile_directory_(std::move(profile_directory)), gpus_(std::move(gpus)) {}

  // `host` first, then GPUs by PCI address, then modelled devices by name.
  std::vector<DeviceInfo> List() const;
  // By name or alias. NOT_FOUND names the nearest device there is.
  absl::StatusOr<DeviceInfo> Find(const std::string& name) const;

 private:
  absl::StatusOr<DeviceInfo> WithProfile(const std::string& name,
                                         const std::string& profile_name) const;
  void AddProfile(DeviceInfo& gpu) const;

  std::string profile_directory_;
  GpuLister gpus_;
};

// Bytes of RAM of this node.
int64_t NodeMemoryBytes();

}  // namespace hbmtune::daemon
