#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/visit.h"

// Reads AMD GPUs from sysfs and KFD. Nothing here opens /dev/kfd or calls a vendor library, so it
// neither blocks a driver reload nor can be taken down by one. What is absent, unreadable or
// nonsense is absent in the answer, never 0. Files and their traps: ROCm kernel driver's
// amdgpu_pm.c and kfd_topology.c.
namespace hbmtune {

// One GPU, or one partition of a GPU.
struct GpuIdentity {
  std::string pci_address;    // "0000:23:00.0": the name of the device everywhere
  int64_t partition = 0;      // 0 unless the GPU is partitioned (CPX, DPX …)
  std::string uuid;           // as amd-smi prints it; empty without a unique_id
  std::string unique_id;      // 16 hexadecimal digits; ROCR_VISIBLE_DEVICES=GPU-<unique_id>
  std::string product;        // "Instinct MI210"; else "AMD GPU 0x740f"
  int64_t kfd_gpu_id = 0;     // 0 without a KFD node
  int64_t render_minor = -1;  // N of /dev/dri/renderDN
  std::string card_path;      // the PCI device's folder; empty for a secondary partition
  std::string node_path;      // the KFD node's folder; empty without one

  // "0000:23:00.0", or "0000:23:00.0/3" for partition 3.
  std::string name() const;
};

struct RasCount {
  std::string block;  // "umc", "sdma" …
  int64_t correctable = 0;
  int64_t uncorrectable = 0;
};

// What changes slowly or is dear to read; once a second.
struct GpuSample {
  std::optional<int64_t> vram_total_bytes;
  std::optional<int64_t> vram_used_bytes;
  std::optional<int64_t> visible_vram_total_bytes;
  std::optional<int64_t> visible_vram_used_bytes;
  std::optional<int64_t> gtt_total_bytes;
  std::optional<int64_t> gtt_used_bytes;
  std::optional<double> busy_ratio;
  std::optional<double> memory_busy_ratio;
  std::optional<double> power_watts;
  std::optional<double> power_cap_watts;
  std::optional<double> edge_celsius;
  std::optional<double> junction_celsius;
  std::optional<double> memory_celsius;
  std::optional<double> link_gigatransfers_per_second;
  std::optional<int64_t> link_lanes;
  std::optional<std::string> compute_partition;  // "SPX", "CPX" …
  std::optional<std::string> memory_partition;   // "NPS1", "NPS4" …
  std::vector<RasCount> ras;
};

// A process with memory on a GPU, by KFD's account. Idle holders of /dev/kfd have 0 bytes.
struct GpuProcess {
  int64_t pid = 0;
  int64_t vram_bytes = 0;
};

// Thread-compatible: const methods may run at once.
class Sysfs {
 public:
  explicit Sysfs(std::string root = "/sys") : root_(std::move(root)) {}

  // Every AMD GPU and partition, by PCI address then partition. Empty without any.
  std::vector<GpuIdentity> Discover() const;
  // All fields of one GPU. A card that has vanished gives an empty sample.
  GpuSample Read(const GpuIdentity& gpu) const;
  // Just the used bytes: one file, for the 10 Hz loop.
  std::optional<int64_t> ReadVramUsed(const GpuIdentity& gpu) const;
  // Processes with a KFD entry for this GPU, by pid; pids are the host's.
  std::vector<GpuProcess> Processes(const GpuIdentity& gpu) const;

 private:
  std::string root_;
};

// amd-smi's UUID of a physical GPU from its unique id (16 hexadecimal digits) and PCI device id.
std::string GpuUuid(const std::string& unique_id, int64_t device_id);

}  // namespace hbmtune
