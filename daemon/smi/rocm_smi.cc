#include "daemon/smi/rocm_smi.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>

namespace hbmtune::daemon {

// The eight functions that are used; their signatures are the same from ROCm 5 to 7.
struct RocmSmi::Functions {
  using Status = int;
  Status (*init)(uint64_t flags);
  Status (*shut_down)();
  Status (*device_count)(uint32_t* count);
  Status (*pci_id)(uint32_t index, uint64_t* id);
  Status (*energy)(uint32_t index, uint64_t* count, float* microjoules_per_count,
                   uint64_t* timestamp);
  Status (*pci_throughput)(uint32_t index, uint64_t* sent, uint64_t* received,
                           uint64_t* largest_packet);
  Status (*reserved_pages)(uint32_t index, uint32_t* count, void* records);

  // True when all are there.
  bool Find(void* library);
};

namespace {

template <class F>
bool FindSymbol(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

void* Open(const std::string& library) {
  if (!library.empty()) return dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  constexpr std::array<const char*, 4> kNames = {"librocm_smi64.so.7", "librocm_smi64.so.6",
                                                 "librocm_smi64.so.5", "librocm_smi64.so.1"};
  for (const char* name : kNames) {
    if (void* opened = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return opened;
  }
  return nullptr;
}

std::string PciAddress(uint64_t id) {
  char address[24];
  std::snprintf(address, sizeof address, "%04x:%02x:%02x.%x", static_cast<unsigned>(id >> 32),
                static_cast<unsigned>((id >> 8) & 0xff), static_cast<unsigned>((id >> 3) & 0x1f),
                static_cast<unsigned>(id & 7));
  return address;
}

}  // namespace

bool RocmSmi::Functions::Find(void* library) {
  return FindSymbol(library, "rsmi_init", init) &&
         FindSymbol(library, "rsmi_shut_down", shut_down) &&
         FindSymbol(library, "rsmi_num_monitor_devices", device_count) &&
         FindSymbol(library, "rsmi_dev_pci_id_get", pci_id) &&
         FindSymbol(library, "rsmi_dev_energy_count_get", energy) &&
         FindSymbol(library, "rsmi_dev_pci_throughput_get", pci_throughput) &&
         FindSymbol(library, "rsmi_dev_memory_reserved_pages_get", reserved_pages);
}

std::unique_ptr<RocmSmi> RocmSmi::Load(const std::string& library, std::string& error) {
  void* opened = Open(library);
  if (opened == nullptr) {
    error = "the ROCm SMI library is not installed (librocm_smi64.so)";
    return nullptr;
  }
  auto functions = std::make_unique<Functions>();
  if (!functions->Find(opened)) {
    error = "the ROCm SMI library lacks a function that is needed: " + std::string(dlerror());
    return nullptr;
  }
  if (int status = functions->init(0); status != 0) {
    error = "rsmi_init failed with status " + std::to_string(status) +
            (status == 8 ? " (no GPU, a card that this version does not know, or a stale lock in "
                           "/dev/shm)"
                         : "");
    return nullptr;
  }
  return std::unique_ptr<RocmSmi>(new RocmSmi(std::move(functions)));
}

RocmSmi::RocmSmi(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

// Without it the library's lock stays taken for everybody (rocm_smi_lib before 6.1.1).
RocmSmi::~RocmSmi() { functions_->shut_down(); }

std::vector<SmiSample> RocmSmi::Sample() {
  std::vector<SmiSample> samples;
  uint32_t count = 0;
  if (functions_->device_count(&count) != 0) return samples;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t id = 0;
    if (functions_->pci_id(i, &id) != 0) continue;
    SmiSample sample;
    sample.pci_address = PciAddress(id);
    uint64_t counter = 0, timestamp = 0, sent = 0, received = 0, packet = 0;
    float microjoules = 0;
    uint32_t pages = 0;
    if (functions_->energy(i, &counter, &microjoules, &timestamp) == 0) {
      sample.energy_joules = static_cast<double>(counter) * microjoules * 1e-6;
    }
    if (functions_->pci_throughput(i, &sent, &received, &packet) == 0) {
      sample.pcie_sent_bytes_per_second = static_cast<double>(sent);
      sample.pcie_received_bytes_per_second = static_cast<double>(received);
    }
    if (functions_->reserved_pages(i, &pages, nullptr) == 0) sample.retired_pages = pages;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace hbmtune::daemon
