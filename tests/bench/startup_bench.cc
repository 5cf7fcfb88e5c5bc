// How long a tiny-llama probe takes from its start until its first step begins: loading, reading
// the request, the Program, the device, weights and optimizer state. One line of JSON, medians.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/model/presets.h"
#include "proto/convert.h"
#include "tests/kernels/probe/probe_process.h"

namespace hbmtune {
namespace {

using Clock = std::chrono::steady_clock;

v1::ProbeRequest Request() {
  Workload workload;
  workload.model = *FindPreset("tiny-llama");
  workload.seq_len = 128;
  v1::ProbeRequest request;
  request.set_trial("studies/1/trials/1");
  ToProto(workload, *request.mutable_workload());
  ToProto(TrainConfig{}, *request.mutable_train_config());
  request.set_device("host");
  request.set_memory_bytes(int64_t{1} << 30);
  request.set_max_steps(1);
  return request;
}

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Startup {
  double started = 0;  // the device is open
  double ready = 0;    // the first step begins
};

// The first step's event comes when it has ended and says how long it took.
Startup Measure() {
  const auto begin = Clock::now();
  testing::ProbeProcess probe;
  probe.Send(Request());
  Startup startup;
  while (const auto event = probe.Next()) {
    if (event->has_started()) startup.started = Since(begin);
    if (!event->has_step()) continue;
    startup.ready = Since(begin) - event->step().seconds();
    probe.All();
    return startup;
  }
  throw std::runtime_error("the probe made no step");
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  setenv("GOMP_SPINCOUNT", "1000", 0);  // as the daemon starts it
  const int runs = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 11;
  std::vector<double> started, ready;
  for (int i = 0; i < runs; ++i) {
    const Startup startup = Measure();
    started.push_back(startup.started);
    ready.push_back(startup.ready);
  }
  Json json;
  json["runs"] = runs;
  json["started_seconds"] = Median(started);
  json["ready_seconds"] = Median(ready);
  json["best_ready_seconds"] = *std::min_element(ready.begin(), ready.end());
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) { return hbmtune::Main(argc, argv); }
