#pragma once

#include <string>

namespace hbmtune::probe {

// Lets the ROCm runtime, loaded later, see the GPU of that unique id alone, whatever the
// environment hides or shows. Before any other thread starts; nothing for an empty id.
void SeeOnlyGpu(const std::string& unique_id);

}  // namespace hbmtune::probe
