#include "daemon/devices/catalogue.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/base/errors.h"
#include "kernels/core/nearest.h"

namespace hbmtune::daemon {
namespace {

constexpr std::string_view kHost = "host";
constexpr std::string_view kModelPrefix = "model:";
// The host's profile as a device that is only modelled: what a study on it says is PREDICTED.
constexpr std::string_view kHostModel = "model:host";

std::string NameOf(const std::string& profile_name) {
  return profile_name == kHost ? profile_name : std::string(kModelPrefix) + profile_name;
}

// A profile is named as the product is, but for what stands around it: "mi300x" describes an "AMD
// Instinct MI300X OAM".
std::string ProfileOf(const std::string& product) {
  const std::vector<std::string> names = device::ProfileNames();
  const std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(product), absl::ByAnyChar(" /,()"));
  for (const std::string& word : words) {
    if (std::find(names.begin(), names.end(), word) != names.end()) return word;
  }
  return "";
}

absl::Status UnknownDevice(const std::string& name, const std::vector<std::string>& known) {
  // "mi210" for "model:mi210" is the likeliest mistake.
  const std::string modelled = std::string(kModelPrefix) + name;
  const bool forgot_prefix = std::find(known.begin(), known.end(), modelled) != known.end();
  const std::string nearest = forgot_prefix ? modelled : NearestName(name, known);
  std::string text = absl::StrCat("there is no device '", name, "'");
  if (nearest.empty()) {
    absl::StrAppend(&text, "; there are ", absl::StrJoin(known, ", "));
  } else {
    absl::StrAppend(&text, " (did you mean ", nearest, "?)");
  }
  return WithReason(absl::NotFoundError(text), "UNKNOWN_DEVICE", {{"nearest", nearest}});
}

}  // namespace

int64_t NodeMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

absl::StatusOr<DeviceInfo> Catalogue::WithProfile(const std::string& name,
                                                  const std::string& profile_name) const {
  auto profile = device::FindProfile(profile_name, profile_directory_);
  if (!profile.ok()) return profile.status();
  const bool host = name == kHost;
  if (name == kHostModel) {
    profile->capacity_bytes = {static_cast<double>(NodeMemoryBytes() / 2),
                               device::FigureKind::kDerived, "half of this node's memory"};
  }
  DeviceInfo info;
  info.name = name;
  info.kind = host ? DeviceKind::kHost : DeviceKind::kModel;
  info.product = profile->title;
  info.memory_bytes =
      host ? NodeMemoryBytes() : static_cast<int64_t>(profile->capacity_bytes.value);
  info.profile = *std::move(profile);
  return info;
}

// A profile describes a whole GPU: a partition has fewer compute units and less bandwidth.
void Catalogue::AddProfile(DeviceInfo& gpu) const {
  const std::string name = ProfileOf(gpu.product);
  if (name.empty() || gpu.partitioned) return;
  auto profile = device::FindProfile(name, profile_directory_);
  if (!profile.ok()) return;
  if (gpu.memory_bytes > 0) {
    profile->capacity_bytes = {static_cast<double>(gpu.memory_bytes),
                               device::FigureKind::kMeasured, "this node's driver"};
  }
  gpu.profile = *std::move(profile);
}

absl::StatusOr<DeviceInfo> Catalogue::Find(const std::string& name) const {
  std::vector<std::string> known;
  if (name == kHostModel) return WithProfile(name, std::string(kHost));
  for (const std::string& profile_name : device::ProfileNames()) {
    known.push_back(NameOf(profile_name));
    if (known.back() == name) return WithProfile(name, profile_name);
  }
  for (DeviceInfo& gpu : gpus_()) {
    const bool alias =
        std::find(gpu.aliases.begin(), gpu.aliases.end(), name) != gpu.aliases.end();
    if (alias || gpu.name == name) {
      AddProfile(gpu);
      return std::move(gpu);
    }
    known.push_back(gpu.name);
  }
  return UnknownDevice(name, known);
}

std::vector<DeviceInfo> Catalogue::List() const {
  std::vector<DeviceInfo> devices;
  for (const std::string& profile_name : device::ProfileNames()) {
    auto found = WithProfile(NameOf(profile_name), profile_name);
    if (!found.ok()) continue;
    devices.push_back(*std::move(found));
    if (profile_name != kHost) continue;
    for (DeviceInfo& gpu : gpus_()) {
      AddProfile(gpu);
      devices.push_back(std::move(gpu));
    }
  }
  return devices;
}

}  // namespace hbmtune::daemon
