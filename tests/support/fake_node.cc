#include "tests/support/fake_node.h"

#include <cstdio>
#include <fstream>

namespace hbmtune::testing {
namespace fs = std::filesystem;

namespace {

constexpr int64_t kMi210Bytes = 68'702'699'520;
constexpr int64_t kMi300xBytes = 206'141'652'992;

int Bus(int index) { return 3 + index; }

}  // namespace

FakeNode::FakeNode() : FakeNode("") {}

FakeNode::FakeNode(std::string path) : root_(std::move(path)) {
  if (root_.empty()) {
    directory_ = std::make_unique<TempDir>();
    root_ = directory_->path();
  }
  Write("class/kfd/kfd/topology/nodes/0/gpu_id", "0");
  Write("class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0");
  fs::create_directories(root() + "/class/kfd/kfd/topology/nodes/0/io_links");
  fs::create_directories(root() + "/class/kfd/kfd/proc");
}

std::string FakeNode::Address(int index) {
  char address[16];
  std::snprintf(address, sizeof address, "0000:%02x:00.0", Bus(index));
  return address;
}

std::string FakeNode::DevicePath(int index) { return "class/amdfake/pci0000:00/" + Address(index); }

void FakeNode::Write(const std::string& relative, const std::string& text) {
  fs::path path = fs::path(root()) / relative;
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

std::string FakeNode::AddGpu(CardKind kind, int index) {
  const bool mi300 = kind == CardKind::kMi300x;
  const int64_t total = mi300 ? kMi300xBytes : kMi210Bytes;
  const std::string device = DevicePath(index) + "/";
  char unique[17];
  std::snprintf(unique, sizeof unique, "%016llx", 0x1234567890ab0000ull + index);
  Write(device + "vendor", "0x1002");
  Write(device + "device", mi300 ? "0x74a1" : "0x740f");
  Write(device + "unique_id", unique);
  Write(device + "product_name", mi300 ? "AMD Instinct MI300X OAM" : "Instinct MI210");
  Write(device + "mem_info_vram_total", std::to_string(total));
  Write(device + "mem_info_vram_used", std::to_string(int64_t{1} << 30));
  Write(device + "mem_info_vis_vram_total", std::to_string(total));
  Write(device + "mem_info_vis_vram_used", std::to_string(int64_t{1} << 30));
  Write(device + "mem_info_gtt_total", "270052999168");
  Write(device + "mem_info_gtt_used", "17825792");
  Write(device + "vbios_version", "113-D67301-063");
  Write(device + "pcie_bw", "1000 2000 256");
  Write(device + "gpu_busy_percent", "73");
  Write(device + "mem_busy_percent", "10");
  Write(device + "current_link_speed", mi300 ? "32.0 GT/s PCIe" : "16.0 GT/s PCIe");
  Write(device + "current_link_width", "16");
  Write(device + "ras/umc_err_count", "ue: 0\nce: 4");
  Write(device + "ras/sdma_err_count", "ue: 1\nce: 0");
  const std::string hwmon = device + "hwmon/hwmon" + std::to_string(index + 2) + "/";
  Write(hwmon + "name", "amdgpu");
  Write(hwmon + (mi300 ? "power1_input" : "power1_average"), "187000000");
  Write(hwmon + "power1_cap", mi300 ? "750000000" : "300000000");
  if (!mi300) {
    Write(hwmon + "in0_label", "vddgfx");
    Write(hwmon + "temp1_label", "edge");
    Write(hwmon + "temp1_input", "45000");
  } else {
    Write(device + "current_compute_partition", "SPX");
    Write(device + "current_memory_partition", "NPS1");
  }
  Write(hwmon + "temp2_label", "junction");
  Write(hwmon + "temp2_input", "51000");
  Write(hwmon + "temp3_label", "mem");
  Write(hwmon + "temp3_input", "48000");
  const std::string card = DevicePath(index) + "/drm/card" + std::to_string(index);
  fs::create_directories(root() + "/" + card);
  fs::create_directories(root() + "/" + device + "drm/renderD" + std::to_string(128 + index));
  fs::create_directory_symlink("../../../" + Address(index), root() + "/" + card + "/device");
  fs::create_directories(root() + "/class/drm");
  fs::create_directory_symlink("../" + card.substr(card.find('/') + 1),
                               root() + "/class/drm/card" + std::to_string(index));
  AddNode(next_node_++, index, 0, total);
  return Address(index);
}

void FakeNode::AddNode(int node, int index, int partition, int64_t bytes) {
  const std::string path = "class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/";
  Write(path + "gpu_id", std::to_string(KfdGpuId(index, partition)));
  fs::create_directories(root() + "/" + path + "io_links");
  Write(path + "name", "gfx");
  Write(path + "properties", "simd_count 416\nhive_id 0\narray_count 8\n"
                             "simd_arrays_per_engine 1\ncu_per_simd_array 14\nlocation_id " +
                                 std::to_string((Bus(index) << 8) | partition) +
                                 "\ndomain 0\ndrm_render_minor " +
                                 std::to_string(128 + index + partition * 32));
  Write(path + "mem_banks/0/properties", "heap_type 1\nsize_in_bytes " + std::to_string(bytes));
}

void FakeNode::AddPartitions(int index, int count, int64_t bytes_each) {
  Write(DevicePath(index) + "/current_compute_partition", "CPX");
  for (int i = 1; i < count; ++i) AddNode(next_node_++, index, i, bytes_each);
}

void FakeNode::AddProcess(int64_t pid, int index, int64_t vram_bytes) {
  Write("class/kfd/kfd/proc/" + std::to_string(pid) + "/vram_" + std::to_string(KfdGpuId(index)),
        std::to_string(vram_bytes));
}

void FakeNode::RemoveGpu(int index) { fs::remove_all(fs::path(root()) / DevicePath(index)); }

void FakeNode::Garble() {
  for (const auto& entry : fs::recursive_directory_iterator(root())) {
    if (entry.is_regular_file()) std::ofstream(entry.path()) << "\xff garbage -12 0x";
  }
}

}  // namespace hbmtune::testing
