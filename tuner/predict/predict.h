#pragma once

#include <absl/status/statusor.h>
#include <cstdint>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "kernels/core/workload.h"
#include "kernels/device/profile.h"

namespace hbmtune {

// What may be used. A 0 takes the default.
struct Ceiling {
  int64_t capacity_bytes = 0;  // memory of the device; 0: the profile's
  int64_t device_bytes = 0;    // 0: capacity less the larger of 5 % and 2 GiB; all of it on host
  int64_t host_bytes = 0;      // memory of the host; 0: no limit

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"capacity_bytes", "memory of the device, 0 for what it has"}, self.capacity_bytes);
    v(Field{"device_bytes", "device memory that may be used, 0 for all but what is kept free"},
      self.device_bytes);
    v(Field{"host_bytes", "host memory that may be used, 0 for no limit"}, self.host_bytes);
  }
};

// The ceiling in bytes of a device with that much memory.
int64_t CeilingBytes(const Ceiling& ceiling, const device::DeviceProfile& profile);

// The modelled device's answer for one train config. INVALID_ARGUMENT names what the framework
// or the model cannot do, OUT_OF_RANGE says that it takes more memory than is modelled (256 TiB),
// and FAILED_PRECONDITION names a host profile without a memory budget.
// Thread-safe.
absl::StatusOr<Estimate> Predict(const Workload& workload, const TrainConfig& config,
                                 const device::DeviceProfile& profile, const Ceiling& ceiling);

}  // namespace hbmtune
