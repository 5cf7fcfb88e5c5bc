#include "daemon/telemetry/sysfs.h"

#include <algorithm>
#include <cstdio>

#include "daemon/telemetry/file_reader.h"

namespace hbmtune {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 44;  // 16 TiB: more is a driver's slip, not memory

std::optional<int64_t> Bytes(const std::string& path) { return ReadInteger(path, 0, kMostBytes); }

std::optional<double> Scaled(const std::string& path, int64_t most, double scale) {
  auto value = ReadInteger(path, 0, most);
  if (!value) return std::nullopt;
  return static_cast<double>(*value) * scale;
}

std::string HwmonOf(const std::string& card) {
  for (const std::string& name : ListFolder(card + "/hwmon")) {
    std::string path = card + "/hwmon/" + name;
    if (ReadText(path + "/name") == "amdgpu") return path;
  }
  return "";
}

// MI200 has power1_average, MI300 power1_input; both in microwatts.
void ReadPower(const std::string& hwmon, GpuSample& sample) {
  constexpr int64_t kMostMicrowatts = 10'000'000'000;
  sample.power_watts = Scaled(hwmon + "/power1_average", kMostMicrowatts, 1e-6);
  if (!sample.power_watts) {
    sample.power_watts = Scaled(hwmon + "/power1_input", kMostMicrowatts, 1e-6);
  }
  sample.power_cap_watts = Scaled(hwmon + "/power1_cap", kMostMicrowatts, 1e-6);
}

void ReadTemperatures(const std::string& hwmon, GpuSample& sample) {
  for (int i = 1; i <= 8; ++i) {
    std::string prefix = hwmon + "/temp" + std::to_string(i);
    auto label = ReadText(prefix + "_label");
    auto celsius = Scaled(prefix + "_input", 200'000, 1e-3);
    if (label == "edge") sample.edge_celsius = celsius;
    if (label == "junction") sample.junction_celsius = celsius;
    if (label == "mem") sample.memory_celsius = celsius;
  }
}

void ReadLink(const std::string& card, GpuSample& sample) {
  double speed = 0;
  auto text = ReadText(card + "/current_link_speed");
  if (text && std::sscanf(text->c_str(), "%lf GT/s", &speed) == 1 && speed > 0) {
    sample.link_gigatransfers_per_second = speed;
  }
  sample.link_lanes = ReadInteger(card + "/current_link_width", 1, 64);
}

// "ue: 0\nce: 4"
void ReadRas(const std::string& card, GpuSample& sample) {
  constexpr std::string_view kSuffix = "_err_count";
  for (const std::string& name : ListFolder(card + "/ras")) {
    if (name.size() <= kSuffix.size() || !name.ends_with(kSuffix)) continue;
    long long uncorrectable = 0, correctable = 0;
    auto text = ReadText(card + "/ras/" + name);
    if (!text) continue;
    int found = std::sscanf(text->c_str(), "ue: %lld ce: %lld", &uncorrectable, &correctable);
    if (found != 2) continue;
    std::string block = name.substr(0, name.size() - kSuffix.size());
    sample.ras.push_back({block, correctable, uncorrectable});
  }
}

std::optional<std::string> Word(const std::string& path) {
  auto text = ReadText(path);
  if (!text || text->empty() || text->size() > 8) return std::nullopt;
  bool plain = std::all_of(text->begin(), text->end(), ::isalnum);
  return plain ? text : std::nullopt;
}

// A partition's own share of memory: the device's files speak of the whole GPU.
std::optional<int64_t> NodeVramTotal(const std::string& node) {
  int64_t total = 0;
  for (const std::string& bank : ListFolder(node + "/mem_banks")) {
    auto properties = ReadProperties(node + "/mem_banks/" + bank + "/properties");
    auto size = properties.find("size_in_bytes");
    if (size != properties.end() && size->second > 0) total += size->second;
  }
  if (total <= 0 || total > kMostBytes) return std::nullopt;
  return total;
}

}  // namespace

GpuSample Sysfs::Read(const GpuIdentity& gpu) const {
  GpuSample sample;
  if (gpu.card_path.empty()) {
    sample.vram_total_bytes = NodeVramTotal(gpu.node_path);
    return sample;
  }
  const std::string& card = gpu.card_path;
  sample.vram_total_bytes = Bytes(card + "/mem_info_vram_total");
  sample.vram_used_bytes = Bytes(card + "/mem_info_vram_used");
  sample.visible_vram_total_bytes = Bytes(card + "/mem_info_vis_vram_total");
  sample.visible_vram_used_bytes = Bytes(card + "/mem_info_vis_vram_used");
  sample.gtt_total_bytes = Bytes(card + "/mem_info_gtt_total");
  sample.gtt_used_bytes = Bytes(card + "/mem_info_gtt_used");
  sample.busy_ratio = Scaled(card + "/gpu_busy_percent", 100, 1e-2);
  sample.memory_busy_ratio = Scaled(card + "/mem_busy_percent", 100, 1e-2);
  sample.compute_partition = Word(card + "/current_compute_partition");
  sample.memory_partition = Word(card + "/current_memory_partition");
  std::string hwmon = HwmonOf(card);
  if (!hwmon.empty()) {
    ReadPower(hwmon, sample);
    ReadTemperatures(hwmon, sample);
  }
  ReadLink(card, sample);
  ReadRas(card, sample);
  return sample;
}

std::optional<int64_t> Sysfs::ReadVramUsed(const GpuIdentity& gpu) const {
  if (gpu.card_path.empty()) return std::nullopt;
  return Bytes(gpu.card_path + "/mem_info_vram_used");
}

std::vector<GpuProcess> Sysfs::Processes(const GpuIdentity& gpu) const {
  std::vector<GpuProcess> processes;
  if (gpu.kfd_gpu_id == 0) return processes;
  const std::string folder = root_ + "/class/kfd/kfd/proc";
  const std::string file = "/vram_" + std::to_string(gpu.kfd_gpu_id);
  for (const std::string& name : ListFolder(folder)) {
    auto pid = ParseInteger(name);
    auto bytes = pid ? Bytes(folder + "/" + name + file) : std::nullopt;
    if (bytes) processes.push_back({*pid, *bytes});
  }
  std::sort(processes.begin(), processes.end(),
            [](const GpuProcess& a, const GpuProcess& b) { return a.pid < b.pid; });
  return processes;
}

}  // namespace hbmtune
