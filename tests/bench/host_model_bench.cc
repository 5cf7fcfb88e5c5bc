// Real training steps on the host beside what the calibrated `host` profile says of them: the
// error of the step time, and peaks to the byte. Models here have none of the calibration's shapes.
//
//   host_model_bench [--profile host.toml] [--steps 6]
//
// Without a profile the host is calibrated first, which takes a minute.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/core/units.h"
#include "kernels/device/calibrate/calibrate.h"
#include "kernels/step/trial.h"
#include "tuner/predict/predict.h"

namespace hbmtune {
namespace {

struct Case {
  std::string name;
  Workload workload;
  TrainConfig config;
};

ModelSpec Model(const std::string& name, int64_t hidden, int64_t layers, int64_t ffn,
                int64_t vocab) {
  ModelSpec model;
  model.name = name;
  model.hidden = hidden;
  model.layers = layers;
  model.heads = hidden / 48;
  model.kv_heads = model.heads;
  model.head_dim = 48;
  model.ffn = ffn;
  model.vocab = vocab;
  model.max_positions = 1024;
  return model;
}

void SetPrecision(const std::string& name, TrainConfig& config) {
  if (name == "fp32") return;
  config.param_dtype = config.compute_dtype = Dtype::kBf16;
  config.master_weights = true;
}

// 3 models × 2 lengths × 2 precisions × {plain, recomputed}, and accumulation and offload.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const ModelSpec& model : {Model("192", 192, 4, 480, 3000), Model("384", 384, 6, 960, 5000),
                                 Model("576", 576, 4, 1440, 7000)}) {
    for (int64_t tokens : {96, 224}) {
      for (const char* precision : {"fp32", "bf16"}) {
        for (int64_t every : {0, 1}) {
          Case one;
          one.workload.model = model;
          one.workload.seq_len = tokens;
          one.config.micro_batch = tokens == 96 ? 6 : 3;
          one.config.checkpoint.every = every;
          SetPrecision(precision, one.config);
          one.name = model.name + " seq " + std::to_string(tokens) + " " + precision +
                     (every > 0 ? " recomputed" : "");
          cases.push_back(one);
        }
      }
    }
    Case more;
    more.workload.model = model;
    more.workload.seq_len = 160;
    more.config.micro_batch = 2;
    more.config.grad_accum = 3;
    more.name = model.name + " seq 160 fp32 accumulated";
    cases.push_back(more);
    more.config.grad_accum = 1;
    more.config.offload.optimizer = OptimizerOffload::kCpuAdam;
    more.name = model.name + " seq 160 fp32 cpu_adam";
    cases.push_back(more);
  }
  return cases;
}

device::DeviceProfile ProfileFrom(const std::string& path) {
  if (path.empty()) {
    return device::CalibrateHost(*device::FindProfile("host"), {.date = "today"},
                                 [](double ratio, const std::string& what) {
                                   std::fprintf(stderr, "\r%3.0f %% %-30s", 100 * ratio,
                                                what.c_str());
                                 });
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  auto profile = device::ParseProfile(text.str());
  if (!profile.ok()) throw std::runtime_error(std::string(profile.status().message()));
  return *profile;
}

// What the worst and the mean are of.
struct Summary {
  double sum = 0, worst = 0;
  std::string worst_name;
  int cases = 0, same_peaks = 0;
};

bool Compare(const Case& one, const device::DeviceProfile& profile, int64_t steps,
             Summary& summary) {
  step::TrialRequest request;
  request.workload = one.workload;
  request.config = one.config;
  request.memory_bytes = 4 * kGiB;
  request.min_steps = request.max_steps = steps;
  const Measurement measured = step::RunTrial(request);
  const auto estimate =
      Predict(one.workload, one.config, profile, {.capacity_bytes = request.memory_bytes});
  if (measured.outcome != Outcome::kOk || !estimate.ok()) {
    std::printf("%-32s %s%s\n", one.name.c_str(), measured.message.c_str(),
                std::string(estimate.status().message()).c_str());
    return false;
  }
  const double error = estimate->step_seconds / measured.step_seconds - 1;
  const bool same = estimate->peak_allocated_bytes == measured.peak_allocated_bytes &&
                    estimate->peak_reserved_bytes == measured.peak_reserved_bytes;
  std::printf("%-32s %8.1f ms %8.1f ms %+7.1f %%  %s\n", one.name.c_str(),
              1e3 * measured.step_seconds, 1e3 * estimate->step_seconds, 100 * error,
              same ? "same" : "DIFFER");
  ++summary.cases;
  summary.same_peaks += same;
  summary.sum += std::abs(error);
  if (std::abs(error) > summary.worst) {
    summary.worst = std::abs(error);
    summary.worst_name = one.name;
  }
  return same;
}

int CompareAll(const std::string& path, int64_t steps) {
  const device::DeviceProfile profile = ProfileFrom(path);
  std::printf("%s, %g threads, %zu measured calls\n", profile.title.c_str(),
              profile.compute_units.value, profile.op_points.size());
  std::printf("%-32s %11s %11s %9s  %s\n", "", "measured", "model:host", "error", "peaks");
  Summary summary;
  bool all = true;
  for (const Case& one : Cases()) all = Compare(one, profile, steps, summary) && all;
  std::printf("%d configs: step time off by %.1f %% on average, %.1f %% at worst (%s); peaks equal "
              "in %d\n", summary.cases, 100 * summary.sum / summary.cases, 100 * summary.worst,
              summary.worst_name.c_str(), summary.same_peaks);
  return all ? 0 : 1;
}

}  // namespace
}  // namespace hbmtune

int main(int argc, char** argv) {
  CLI::App app("host against model:host");
  std::string profile;
  int64_t steps = 6;
  app.add_option("--profile", profile, "a profile that hbmtune calibrate wrote");
  app.add_option("--steps", steps, "timed steps of each config");
  CLI11_PARSE(app, argc, argv);
  return hbmtune::CompareAll(profile, steps);
}
