#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <map>

#include "daemon/telemetry/file_reader.h"
#include "daemon/telemetry/sysfs.h"

namespace hbmtune {
namespace {

constexpr int64_t kAmdVendor = 0x1002;

bool LooksLikePciAddress(const std::string& text) {
  unsigned domain, bus, device, function;
  int used = 0;
  return std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
                     &used) == 4 &&
         static_cast<size_t>(used) == text.size();
}

// The PCI device that a DRM card's "device" link points at: the last part of its target. A
// partition's card points at a platform device (amdgpu_xcp.N) and gives nothing.
std::string PciAddressOf(const std::string& card) {
  char target[PATH_MAX];
  ssize_t length = readlink((card + "/device").c_str(), target, sizeof target - 1);
  if (length <= 0) return "";
  std::string path(target, static_cast<size_t>(length));
  std::string last = path.substr(path.rfind('/') + 1);
  return LooksLikePciAddress(last) ? last : "";
}

bool IsCard(const std::string& name) {
  return name.rfind("card", 0) == 0 && name.size() > 4 &&
         std::all_of(name.begin() + 4, name.end(), ::isdigit);
}

GpuIdentity ReadCard(const std::string& address, const std::string& path) {
  GpuIdentity gpu;
  gpu.pci_address = address;
  gpu.card_path = path;
  int64_t device_id = ReadInteger(path + "/device", 0, 0xffff).value_or(0);
  char fallback[32];
  std::snprintf(fallback, sizeof fallback, "AMD GPU 0x%04x", static_cast<unsigned>(device_id));
  gpu.product = ReadText(path + "/product_name").value_or("");
  if (gpu.product.empty()) gpu.product = fallback;
  std::string unique = ReadText(path + "/unique_id").value_or("");
  bool hexadecimal = unique.size() == 16 && std::all_of(unique.begin(), unique.end(), ::isxdigit);
  if (hexadecimal) {
    gpu.unique_id = unique;
    gpu.uuid = GpuUuid(unique, device_id);
  }
  for (const std::string& name : ListFolder(path + "/drm")) {
    if (name.rfind("renderD", 0) != 0) continue;
    gpu.render_minor = ParseInteger(name.substr(7)).value_or(-1);
  }
  return gpu;
}

// location_id is bus << 8 | device << 3 | function; partition N of a GPU has function N.
std::string PciAddressOf(const std::map<std::string, int64_t>& node, int64_t function) {
  auto field = [&](const char* name) {
    auto found = node.find(name);
    return found == node.end() ? int64_t{0} : found->second;
  };
  int64_t location = field("location_id");
  char address[24];
  std::snprintf(address, sizeof address, "%04x:%02x:%02x.%x",
                static_cast<unsigned>(field("domain") & 0xffff),
                static_cast<unsigned>((location >> 8) & 0xff),
                static_cast<unsigned>((location >> 3) & 0x1f), static_cast<unsigned>(function));
  return address;
}

void AddNode(const std::string& path, std::map<std::string, GpuIdentity>& gpus) {
  int64_t gpu_id = ReadInteger(path + "/gpu_id", 1, INT64_MAX).value_or(0);
  auto node = ReadProperties(path + "/properties");
  if (gpu_id == 0 || node.count("location_id") == 0) return;
  int64_t function = node["location_id"] & 7;
  auto primary = gpus.find(PciAddressOf(node, 0));
  if (primary == gpus.end()) return;
  GpuIdentity gpu = primary->second;
  gpu.partition = function;
  gpu.kfd_gpu_id = gpu_id;
  gpu.node_path = path;
  if (node.count("drm_render_minor") != 0) gpu.render_minor = node["drm_render_minor"];
  if (function != 0) gpu.card_path.clear();
  gpus[gpu.name()] = gpu;
}

}  // namespace

std::string GpuIdentity::name() const {
  return partition == 0 ? pci_address : pci_address + "/" + std::to_string(partition);
}

std::string GpuUuid(const std::string& unique_id, int64_t device_id) {
  char device[8];
  std::snprintf(device, sizeof device, "%04x", static_cast<unsigned>(device_id & 0xffff));
  return unique_id.substr(0, 2) + "ff" + device + "-0000-1000-80" + unique_id.substr(2, 2) + "-" +
         unique_id.substr(4, 12);
}

std::vector<GpuIdentity> Sysfs::Discover() const {
  std::map<std::string, GpuIdentity> gpus;
  const std::string drm = root_ + "/class/drm";
  for (const std::string& name : ListFolder(drm)) {
    if (!IsCard(name)) continue;
    std::string address = PciAddressOf(drm + "/" + name);
    std::string path = drm + "/" + name + "/device";
    if (address.empty() || ReadInteger(path + "/vendor", 0, 0xffff) != kAmdVendor) continue;
    gpus[address] = ReadCard(address, path);
  }
  const std::string nodes = root_ + "/class/kfd/kfd/topology/nodes";
  for (const std::string& name : ListFolder(nodes)) AddNode(nodes + "/" + name, gpus);
  std::vector<GpuIdentity> sorted;
  for (auto& [unused, gpu] : gpus) sorted.push_back(std::move(gpu));
  std::sort(sorted.begin(), sorted.end(), [](const GpuIdentity& a, const GpuIdentity& b) {
    return std::tie(a.pci_address, a.partition) < std::tie(b.pci_address, b.partition);
  });
  return sorted;
}

}  // namespace hbmtune
