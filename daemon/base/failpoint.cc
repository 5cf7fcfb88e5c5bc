#include "daemon/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

namespace hbmtune::daemon {
namespace {

struct Setting {
  std::string name;
  std::atomic<int> passes_left = 0;

  Setting() {
    const char* text = std::getenv("HBMTUNE_FAILPOINT");
    if (text == nullptr) return;
    name = text;
    const size_t colon = name.find(':');
    passes_left = colon == std::string::npos ? 1 : std::atoi(name.c_str() + colon + 1);
    name.resize(std::min(name.size(), colon));
  }
};

}  // namespace

void Failpoint(std::string_view name) {
  static Setting setting;
  if (setting.name.empty() || setting.name != name) return;
  if (--setting.passes_left == 0) kill(getpid(), SIGKILL);
}

}  // namespace hbmtune::daemon
