#include "kernels/probe/train.h"

#include <cstdio>
#include <iostream>
#include <optional>
#include <stdexcept>

#include "kernels/core/precision.h"
#include "kernels/core/regular_file.h"
#include "kernels/core/units.h"
#include "kernels/model/model_config.h"
#include "kernels/model/presets.h"
#include "kernels/probe/stop.h"
#include "kernels/step/trial.h"

namespace hbmtune::probe {
namespace {

constexpr size_t kMostTextBytes = size_t{1} << 30;
constexpr size_t kMostConfigBytes = size_t{1} << 20;

ModelSpec LoadModel(const std::string& name) {
  if (auto preset = FindPreset(name)) return *preset;
  return ParseModelConfig(ReadRegularFile(name, kMostConfigBytes), name);
}

void SetPrecision(const std::string& name, TrainConfig& config) {
  const std::optional<Precision> precision = ParseEnum<Precision>(name);
  if (!precision) {
    throw std::invalid_argument("precision '" + name +
                                "' is not fp32, fp16-amp, bf16-amp or bf16");
  }
  ApplyPrecision(*precision, Framework::kFused, config);
}

step::TrialRequest MakeRequest(const TrainOptions& options) {
  step::TrialRequest request;
  request.workload.model = LoadModel(options.model);
  request.workload.seq_len = options.seq_len;
  request.config.micro_batch = options.micro_batch;
  request.config.grad_accum = options.grad_accum;
  SetPrecision(options.precision, request.config);
  const std::optional<int64_t> memory = ParseBytes(options.memory);
  if (!memory) throw std::invalid_argument("'" + options.memory + "' is no size like 1GiB");
  request.memory_bytes = *memory;
  request.min_steps = request.max_steps = options.steps - 1;  // the first is warm-up
  request.threads = options.threads;
  request.seed = static_cast<uint64_t>(options.seed);
  request.optimizer.lr = options.lr;
  request.data = step::TextBytes(ReadRegularFile(options.file, kMostTextBytes), request.seed, 0,
                                 request.workload.model.vocab);
  return request;
}

void PrintStep(std::ostream& out, const step::StepReport& report) {
  char line[128];
  std::snprintf(line, sizeof line, "step %5lld  loss %8.4f  gradient norm %8.4f  %7.1f ms",
                static_cast<long long>(report.index), report.loss, report.grad_norm,
                report.seconds * 1e3);
  out << line;
  if (report.overflow) out << "  (skipped: " << report.overflow_in << ')';
  out << std::endl;
}

}  // namespace

int Train(const TrainOptions& options, std::ostream& out) {
  step::TrialRequest request;
  try {
    request = MakeRequest(options);
  } catch (const std::invalid_argument& error) {
    std::cerr << "hbmtune-probe: " << error.what() << '\n';
    return 2;
  }
  WatchSignals();
  step::TrialEvents events;
  events.cancel = &StopFlag();
  events.on_step = [&](const step::StepReport& report) { PrintStep(out, report); };
  const Measurement measurement = step::RunTrial(request, events);
  if (measurement.outcome != Outcome::kOk) {
    std::cerr << "hbmtune-probe: " << Name(measurement.outcome) << ": " << measurement.message
              << '\n';
    return measurement.outcome == Outcome::kInvalid ? 2 : 1;
  }
  out << "loss " << measurement.first_loss << " -> " << measurement.last_loss << ", "
      << static_cast<int64_t>(measurement.tokens_per_second) << " tokens/s, peak "
      << FormatBytes(measurement.peak_allocated_bytes) << " allocated\n";
  return 0;
}

}  // namespace hbmtune::probe
