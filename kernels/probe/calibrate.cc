#include "kernels/probe/calibrate.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>

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

std::string MeasureHost(int threads, double budget_seconds,
                        const device::CalibrationProgress& progress) {
  const auto base = device::FindProfile("host");
  if (!base.ok()) throw std::runtime_error(std::string(base.status().message()));
  device::CalibrationOptions options;
  options.threads = threads;
  options.budget_seconds = budget_seconds;
  options.date = Today();
  const device::DeviceProfile profile = device::CalibrateHost(*base, options, progress);
  const std::string text = device::ProfileText(
      profile, "written by hbmtune calibrate on " + options.date + ", " + profile.title);
  const auto read = device::ParseProfile(text);
  if (read.ok()) return text;
  throw std::runtime_error("a figure makes no sense: " + std::string(read.status().message()));
}

int Calibrate(const std::string& path, int threads, double budget_seconds, std::ostream& out) {
  try {
    const std::string text =
        MeasureHost(threads, budget_seconds, [&](double done_ratio, const std::string& what) {
          out << done_ratio << ' ' << what << std::endl;
        });
    if (WriteWhole(path, text)) return 0;
    std::cerr << "hbmtune-probe: cannot write " << path << ": " << std::strerror(errno) << '\n';
  } catch (const std::exception& error) {
    std::cerr << "hbmtune-probe: " << error.what() << '\n';
  }
  return 1;
}

}  // namespace hbmtune::probe
