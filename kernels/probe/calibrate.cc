#include "kernels/probe/calibrate.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>

#include "kernels/device/calibrate/calibrate.h"
#include "kernels/device/profile_text.h"

namespace hbmtune::probe {
namespace {

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[16] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

// A reader never sees half a profile.
bool WriteWhole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return !file.fail() && std::rename(part.c_str(), path.c_str()) == 0;
}

}  // namespace

int Calibrate(const std::string& path, int threads, double budget_seconds, std::ostream& out) {
  const auto base = device::FindProfile("host");
  if (!base.ok()) {
    std::cerr << "hbmtune-probe: " << base.status().message() << '\n';
    return 1;
  }
  device::CalibrationOptions options;
  options.threads = threads;
  options.budget_seconds = budget_seconds;
  options.date = Today();
  try {
    const device::DeviceProfile profile =
        device::CalibrateHost(*base, options, [&](double done_ratio, const std::string& what) {
          out << done_ratio << ' ' << what << std::endl;
        });
    const std::string text = device::ProfileText(
        profile, "written by hbmtune calibrate on " + options.date + ", " + profile.title);
    if (auto read = device::ParseProfile(text); !read.ok()) {
      std::cerr << "hbmtune-probe: a figure makes no sense: " << read.status().message() << '\n';
      return 1;
    }
    if (WriteWhole(path, text)) return 0;
    std::cerr << "hbmtune-probe: cannot write " << path << ": " << std::strerror(errno) << '\n';
  } catch (const std::exception& error) {
    std::cerr << "hbmtune-probe: " << error.what() << '\n';
  }
  return 1;
}

}  // namespace hbmtune::probe
