#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hbmtune/v1/probe.pb.h"

namespace hbmtune::testing {

// A running hbmtune-probe, spoken to as a prober does.
class ProbeProcess {
 public:
  ProbeProcess();
  // Kills what is still there.
  ~ProbeProcess();
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  void Send(const v1::ProbeRequest& request);
  void CloseInput();
  // The next event; nothing at the end of the stream.
  std::optional<v1::ProbeEvent> Next();
  // Events up to and with `finished`, or the end of the stream.
  std::vector<v1::ProbeEvent> All();
  // Waits for the exit and returns the status as a shell has it (128 + signal).
  int Wait();
  pid_t pid() const { return pid_; }
  int output() const { return output_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace hbmtune::testing
