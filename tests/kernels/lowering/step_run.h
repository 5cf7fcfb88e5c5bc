#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/host/host_device.h"
#include "kernels/lowering/fused.h"
#include "kernels/step/data.h"
#include "kernels/step/executor.h"
#include "tests/support/safetensors.h"

namespace hbmtune::testing {

// A recorded model: its workload, and the config that trains it as the recorder did.
struct Recorded {
  explicit Recorded(const std::string& name);

  SafetensorsFile file;
  Workload workload;
  TrainConfig config;
  lowering::FusedOptions options;
};

// A Program on a host device of its own, to be stepped and looked into.
class StepRun {
 public:
  explicit StepRun(Program program, bool poison = true,
                   device::HostDeviceOptions device = {.memory_bytes = int64_t{1} << 30});

  // Setup, weights and micro-batch of the recording.
  void Start(const Recorded& recorded);
  // Setup, initial weights of the seed and synthetic tokens.
  void Start(const Workload& workload, uint64_t seed = 1, int64_t rank = 0);
  void set_data(std::unique_ptr<step::DataSource> data) { data_ = std::move(data); }
  // The next optimizer step; returns its loss.
  double Step();

  // Whether the Program has a parameter or state of that name.
  bool Has(const std::string& name) const;
  std::vector<double> Values(const std::string& name);
  void SetValues(const std::string& name, const std::vector<double>& values);
  // Every parameter and optimizer state, by name, bit by bit.
  std::map<std::string, std::string> Bits();

  const Program& program() const { return program_; }
  step::Executor& executor() { return *executor_; }

 private:
  Program program_;
  device::HostDevice device_;
  std::unique_ptr<step::Executor> executor_;
  std::unique_ptr<step::DataSource> data_;
  bool first_ = true;
};

// The state after two steps with freed memory poisoned, from the first seed's weights; nothing if
// the Program used a storage that is not allocated.
std::optional<std::map<std::string, std::string>> TwoSteps(const Program& program,
                                                           const Workload& workload);

// ‖a − b‖ / ‖b‖.
double RelativeError(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace hbmtune::testing
