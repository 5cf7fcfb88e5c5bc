#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The ROCm SMI library, loaded at run time, for what sysfs lacks. Used by hbmtune-smi only: the
// library can abort its caller (Debian builds it with asserts) or wedge on its lock in /dev/shm.
namespace hbmtune::daemon {

// One GPU; absent where the library has no answer.
struct SmiSample {
  std::string pci_address;
  std::optional<double> energy_joules;  // since the driver was loaded
  std::optional<double> pcie_sent_bytes_per_second;      // the call takes a second on hardware
  std::optional<double> pcie_received_bytes_per_second;
  std::optional<int64_t> retired_pages;  // of VRAM, set aside after errors
};

class RocmSmi {
 public:
  // Loads librocm_smi64.so.7, .6, .5 or .1 (or the library that is named) and initialises it.
  // Null with a sentence in `error` when there is none, or it finds no GPU.
  static std::unique_ptr<RocmSmi> Load(const std::string& library, std::string& error);
  ~RocmSmi();
  RocmSmi(const RocmSmi&) = delete;
  RocmSmi& operator=(const RocmSmi&) = delete;

  std::vector<SmiSample> Sample();

 private:
  struct Functions;
  explicit RocmSmi(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace hbmtune::daemon
