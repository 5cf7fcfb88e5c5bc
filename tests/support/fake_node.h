#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temp_dir.h"

// Trees of sysfs as the amdgpu and KFD drivers show them. What each kind of card has and lacks
// follows the kernel driver's amdgpu_pm.c and kfd_topology.c; the files that only the ROCm SMI
// library wants (vbios_version, io_links, …) are there too. The PCI devices lie below class/, so
// that a mount over /sys/class alone shows the whole tree.
namespace hbmtune::testing {

enum class CardKind {
  kMi210,   // hwmon with in0_label, temp1 (edge), power1_average; no partition files
  kMi300x,  // no in0_label, no temp1, power1_input, partition files
};

class FakeNode {
 public:
  // In a temporary folder that goes with the object, or in `path`, which stays.
  FakeNode();
  explicit FakeNode(std::string path);

  // Adds GPU number `index` (0 to 31) and its KFD node; returns its PCI address.
  std::string AddGpu(CardKind kind, int index);
  // Splits GPU `index` in `count` partitions (CPX): KFD nodes with functions 1 … count − 1.
  void AddPartitions(int index, int count, int64_t bytes_each);
  // A process with memory on every GPU that was added.
  void AddProcess(int64_t pid, int index, int64_t vram_bytes);
  // The card disappears, as after a failed reset.
  void RemoveGpu(int index);
  // Writes "garbage" into every file.
  void Garble();

  void Write(const std::string& relative, const std::string& text);
  // Folder of GPU `index`'s PCI device, relative to the root.
  static std::string DevicePath(int index);
  static std::string Address(int index);
  static int64_t KfdGpuId(int index, int partition = 0) { return 1000 + index * 100 + partition; }
  const std::string& root() const { return root_; }

 private:
  void AddNode(int node, int index, int partition, int64_t bytes);

  std::unique_ptr<TempDir> directory_;
  std::string root_;
  int next_node_ = 1;
};

}  // namespace hbmtune::testing
