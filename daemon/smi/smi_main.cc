// hbmtune-smi [LIBRARY]: asks the ROCm SMI library for what sysfs lacks, in a process of its own.
// One line on stdin ("sample") gives one line of JSON on stdout; end of file ends it. Takes a
// private /dev/shm where it may, so that its lock is nobody else's.
#include <sched.h>
#include <sys/mount.h>

#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/smi/rocm_smi.h"

namespace {

// Needs CAP_SYS_ADMIN, or a unit with TemporaryFileSystem=/dev/shm; without either the lock is
// shared, as it is for every other user of the library.
void TakePrivateShm() {
  if (unshare(CLONE_NEWNS) != 0) return;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
  mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
}

template <class T>
void Put(nlohmann::json& json, const char* name, const std::optional<T>& value) {
  if (value) json[name] = *value;
}

nlohmann::json ToJson(const std::vector<hbmtune::daemon::SmiSample>& samples) {
  nlohmann::json devices = nlohmann::json::array();
  for (const auto& sample : samples) {
    nlohmann::json device = {{"pci_address", sample.pci_address}};
    Put(device, "energy_joules", sample.energy_joules);
    Put(device, "pcie_sent_bytes_per_second", sample.pcie_sent_bytes_per_second);
    Put(device, "pcie_received_bytes_per_second", sample.pcie_received_bytes_per_second);
    Put(device, "retired_pages", sample.retired_pages);
    devices.push_back(std::move(device));
  }
  return {{"devices", devices}};
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);
  TakePrivateShm();
  std::string error;
  auto smi = hbmtune::daemon::RocmSmi::Load(argc > 1 ? argv[1] : "", error);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer = smi ? ToJson(smi->Sample()) : nlohmann::json{{"error", error}};
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
