#include "kernels/probe/visible_gpu.h"

#include <cstdlib>

namespace hbmtune::probe {

// HIP's variables count among what ROCR's leaves over, so a GPU that they name would be another.
// https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html
void SeeOnlyGpu(const std::string& unique_id) {
  if (unique_id.empty()) return;
  for (const char* name : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"}) {
    unsetenv(name);
  }
  setenv("ROCR_VISIBLE_DEVICES", ("GPU-" + unique_id).c_str(), 1);
}

}  // namespace hbmtune::probe
