#include "daemon/devices/gpus.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <fstream>

namespace hbmtune::daemon {
namespace {

std::vector<DeviceProcess> ProcessesOf(const DeviceState& state) {
  std::vector<DeviceProcess> processes;
  for (const GpuProcess& process : state.processes) {
    if (process.vram_bytes == 0) continue;  // it has only opened /dev/kfd
    processes.push_back({process.pid, process.vram_bytes, ProgramOf(process.pid)});
  }
  std::sort(processes.begin(), processes.end(), [](const auto& a, const auto& b) {
    return a.memory_bytes > b.memory_bytes;
  });
  return processes;
}

}  // namespace

std::string ProgramOf(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/comm"));
  std::string program;
  std::getline(file, program);
  std::replace_if(
      program.begin(), program.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return program;
}

std::vector<DeviceInfo> GpusOf(const Sampler& sampler) {
  std::vector<DeviceInfo> gpus;
  for (const DeviceState& state : sampler.Devices()) {
    DeviceInfo& gpu = gpus.emplace_back();
    gpu.name = state.identity.name();
    gpu.kind = DeviceKind::kGpu;
    gpu.product = state.identity.product;
    gpu.unique_id = state.identity.unique_id;
    gpu.partitioned = state.identity.partition != 0 ||
                      state.sample.compute_partition.value_or("SPX") != "SPX";
    gpu.memory_bytes = state.sample.vram_total_bytes.value_or(0);
    gpu.used_bytes = state.sample.vram_used_bytes;
    gpu.processes = ProcessesOf(state);
    gpu.aliases.push_back(absl::StrCat("hip:", gpus.size() - 1));
    if (!state.identity.uuid.empty()) gpu.aliases.push_back(state.identity.uuid);
    if (state.identity.render_minor >= 0) {
      gpu.aliases.push_back(absl::StrCat("renderD", state.identity.render_minor));
    }
  }
  return gpus;
}

}  // namespace hbmtune::daemon
