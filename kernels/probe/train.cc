#include "kernels/probe/train.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
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
  if (!(std::isfinite(options.lr) && options.lr >= 0)) {
    throw std::invalid_argument("a learning rate of " + std::to_string(options.lr) +
                                ": it must be a number of 0 or more");
  }
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

// A reader that has seen enough (`| head`) needs no sentence.
int CannotWrite(int error) {
  if (error == EPIPE) return 1;
  std::cerr << "hbmtune-probe: cannot write the steps: " << std::strerror(error) << '\n';
  return 1;
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
  int unwritten = 0;  // errno of the first line that could not be written
  events.on_step = [&](const step::StepReport& report) {
    errno = 0;
    PrintStep(out, report);
    if (out || unwritten != 0) return;
    unwritten = errno != 0 ? errno : EIO;
    StopFlag() = true;
  };
  const Measurement measurement = step::RunTrial(request, events);
  if (unwritten != 0) return CannotWrite(unwritten);
  if (measurement.outcome != Outcome::kOk) {
    std::cerr << "hbmtune-probe: " << Name(measurement.outcome) << ": " << measurement.message
              << '\n';
    if (measurement.outcome == Outcome::kCancelled && StopSignal() != 0) return 128 + StopSignal();
    return measurement.outcome == Outcome::kInvalid ? 2 : 1;
  }
  out << "loss " << measurement.first_loss << " -> " << measurement.last_loss << ", "
      << static_cast<int64_t>(measurement.tokens_per_second) << " tokens/s, peak "
      << FormatBytes(measurement.peak_allocated_bytes) << " allocated" << std::endl;
  return out ? 0 : CannotWrite(errno);
}

}  // namespace hbmtune::probe
