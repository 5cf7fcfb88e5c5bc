#include "client/device_lines.h"

#include "client/screen.h"
#include "client/text.h"

namespace hbmtune::client {

std::vector<std::string> DirtyLines(const v1::ListDevicesResponse& devices, size_t columns) {
  constexpr size_t kIndent = 2;
  std::vector<std::string> lines;
  for (const v1::Device& device : devices.devices()) {
    if (device.dirty().empty()) continue;
    const std::string name = Harmless(device.name());
    const std::string text =
        name + " is dirty: " + Harmless(device.dirty()) +
        ". No probe starts there until that is over, which is looked at every second. If it does "
        "not come, end what holds the memory or reset the GPU; if the memory is taken for good, "
        "an admin says so: hbmtune resume " + name;
    std::string indent;
    for (const std::string& line : Wrap(text, columns > kIndent ? columns - kIndent : 1)) {
      lines.push_back(indent + line);
      indent.assign(kIndent, ' ');
    }
  }
  return lines;
}

}  // namespace hbmtune::client
