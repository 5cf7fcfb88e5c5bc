#pragma once

#include <vector>

#include "daemon/devices/catalogue.h"
#include "daemon/telemetry/sampler.h"

namespace hbmtune::daemon {

// The sampler's GPUs as devices, by PCI address; one that has vanished is still listed, without
// figures. Their profiles are the catalogue's business.
std::vector<DeviceInfo> GpusOf(const Sampler& sampler);

// Name of a process's program, printable; empty if it cannot be read.
std::string ProgramOf(int64_t pid);

}  // namespace hbmtune::daemon
