#pragma once

#include <sys/types.h>

#include <string>

namespace hbmtune::testing {

// hbmtune-probe.socket of a test: systemd's own activator on a path, which starts `program` for
// each connection, with an environment of its own.
class ProbeUnit {
 public:
  // Takes connections when it returns; throws std::runtime_error if it cannot.
  ProbeUnit(const std::string& path, const std::string& program);
  // Takes none any more. Probes that still run are left to themselves.
  ~ProbeUnit();
  ProbeUnit(const ProbeUnit&) = delete;
  ProbeUnit& operator=(const ProbeUnit&) = delete;

 private:
  pid_t pid_ = -1;
};

}  // namespace hbmtune::testing
