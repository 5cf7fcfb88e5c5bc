#include "kernels/step/trial.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "kernels/comm/gloo_communicator.h"
#include "kernels/core/error.h"
#include "kernels/device/host/host_device.h"
#include "kernels/step/executor.h"
#include "kernels/step/not_finite.h"
#include "kernels/step/pinned_plan.h"
#include "kernels/step/trial_program.h"
#include "kernels/step/weights.h"

namespace hbmtune::step {
namespace {

// Padded rows bring new shapes, and the first step of each compiles its products: so many of them
// are not timed.
constexpr int64_t kShapesWarmedUp = 8;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Of the median, as if step times were normal: 1.2533 σ / √n.
double MedianStderr(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double n = static_cast<double>(values.size());
  double mean = 0;
  for (double value : values) mean += value / n;
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return 1.2533 * std::sqrt(squares / (n - 1) / n);
}

// One run, from the Program to the figures. Measurement fields are filled as they become known,
// so that a trial that fails reports what it had reached.
class Trial {
 public:
  Trial(const TrialRequest& request, const TrialEvents& events, Measurement& measurement)
      : request_(request),
        events_(events),
        measurement_(measurement),
        pads_(request.workload.sequences.layout == SequenceLayout::kPadded),
        row_lengths_(request.workload, request.config, request.seed, request.rank) {}

  void Run() {
    SetThreads();
    CheckRequest();
    lowering::FusedOptions options;
    options.optimizer = request_.optimizer;
    options.rank = request_.rank;
    options.device_bytes = request_.memory_bytes;
    int64_t later_pinned_bytes = 0;
    if (pads_) {
      later_pinned_bytes = PinnedBytes(
          lowering::LowerFused(request_.workload, request_.config, options));
      DrawRows(Order() == SequenceOrder::kLongestFirst);
      options.row_tokens = rows_.padded_tokens;
    }
    TrialProgram program(request_.workload, request_.config, options);
    device::HostDeviceOptions device_options;
    device_options.memory_bytes = request_.memory_bytes;
    device_options.copy_bytes_per_second = request_.copy_bytes_per_second;
    if (request_.workload.world_size > 1) MeetRanks();
    device_options.communicator = communicator_.get();
    device::HostDevice device(device_options);
    if (events_.on_started) events_.on_started(request_.memory_bytes);
    Executor executor(program.program(), device,
                      memory::AllocatorConfig::From(request_.config.allocator),
                      {.poison = request_.poison,
                       .pool_bytes = request_.config.offload.pool_bytes,
                       .later_pinned_bytes = later_pinned_bytes});
    try {
      RunSteps(program, executor);
    } catch (...) {
      NotePeaks(executor);
      throw;
    }
    NotePeaks(executor);
  }

 private:
  std::shared_ptr<DataSource> MakeData() const {
    const Workload& workload = request_.workload;
    if (pads_) return PaddedTokens(request_.seed, request_.rank, workload.model.vocab);
    if (workload.sequences.layout == SequenceLayout::kPacked) {
      return PackedTokens(workload.sequences, request_.seed, request_.rank,
                          workload.model.vocab);
    }
    return SyntheticTokens(request_.seed, request_.rank, workload.model.vocab);
  }

  // Ranks share the cores; more threads than cores would spin against each other.
  void SetThreads() const {
    const auto ranks = static_cast<int>(std::max<int64_t>(request_.workload.world_size, 1));
    const int threads = request_.threads > 0 ? static_cast<int>(request_.threads)
                                             : std::max(1, omp_get_max_threads() / ranks);
    omp_set_num_threads(threads);
  }

  void CheckRequest() const {
    if (request_.workload.world_size > 1 && request_.rendezvous_path.empty()) {
      throw std::invalid_argument("ranks of a world of " +
                                  std::to_string(request_.workload.world_size) +
                                  " need a rendezvous path");
    }
  }

  void MeetRanks() {
    comm::GlooOptions options;
    options.rank = static_cast<int>(request_.rank);
    options.size = static_cast<int>(request_.workload.world_size);
    options.rendezvous_path = request_.rendezvous_path;
    options.timeout = std::chrono::seconds(60);  // a rank may start late, and compile products
    communicator_ = std::make_unique<comm::GlooCommunicator>(options);
  }

  // A rank without a sign of life for 20 steps, and at least 10 s, is given up.
  void SetPatience() {
    if (communicator_ == nullptr || seconds_.empty()) return;
    const double patience = std::max(10.0, 20 * measurement_.step_seconds);
    communicator_->set_timeout(
        std::chrono::milliseconds(static_cast<int64_t>(patience * 1000)));
  }

  void RunSteps(TrialProgram& program, Executor& executor) {
    data_ = request_.data != nullptr ? request_.data : MakeData();
    executor.set_cancel(events_.cancel);
    executor.set_feed([&](int64_t* ids, int64_t* labels, int64_t rows, int64_t tokens) {
      data_->Fill(ids, labels, rows, tokens);
    });
    executor.RunSetup();
    InitialiseWeights(executor, program.program(), request_.workload, request_.seed, request_.rank);
    const int64_t warmup = std::max<int64_t>(request_.warmup_steps, 1);
    double spent = 0;
    int64_t i = 0;
    for (; !Enough(spent); ++i) {
      if (pads_ && i > 0) DrawRows(false);
      const bool first_of_shape = UseRows(program, executor) && i < warmup + kShapesWarmedUp;
      const double seconds = Step(program, executor, i);
      if (i < warmup) continue;
      spent += seconds;
      if (first_of_shape) continue;
      seconds_.push_back(seconds);
      NoteSpeed();
      SetPatience();
    }
    if (pads_ && Order() == SequenceOrder::kLongestLate) {
      DrawRows(true);
      UseRows(program, executor);
      Step(program, executor, i++);
    }
    if (auto sentence = StateNotFinite(program.program(), executor, request_.workload, i - 1)) {
      throw NotFinite(*sentence);
    }
  }

  SequenceOrder Order() const { return request_.workload.sequences.order; }

  void DrawRows(bool longest) {
    rows_ = longest ? row_lengths_.NextWithLongest() : row_lengths_.Next();
  }

  // The step's rows are the drawn ones. True if no step had rows as long.
  bool UseRows(TrialProgram& program, Executor& executor) {
    if (!pads_) return false;
    data_->BeginStep(rows_);
    return program.UseRows(rows_.padded_tokens, executor);
  }

  // Of several ranks the first decides: by clocks of their own they would not end together. Each
  // hears from each, so that all name one that is lost (a broadcast waits for its root alone).
  bool Enough(double spent) {
    const auto timed = static_cast<int64_t>(seconds_.size());
    const bool spent_enough =
        timed >= request_.max_steps || spent >= request_.step_budget_seconds;
    int64_t enough = timed >= std::max<int64_t>(request_.min_steps, 1) && spent_enough;
    if (communicator_ == nullptr) return enough != 0;
    std::vector<int64_t> of_ranks(communicator_->size());
    communicator_->AllGather({&enough, Dtype::kI64, {1}, {1}},
                             {of_ranks.data(), Dtype::kI64, {communicator_->size()}, {1}});
    return of_ranks[0] != 0;
  }

  double Step(TrialProgram& program, Executor& executor, int64_t index) {
    const double begin = executor.device().Seconds();
    if (index == 0) {
      executor.RunFirstStep();
    } else {
      executor.RunSteadyStep();
    }
    program.AfterStep(executor);
    executor.device().Synchronize();
    const double seconds = executor.device().Seconds() - begin;
    Report(program, executor, index, seconds);
    const int64_t every = request_.config.cleanup_every_steps;
    if (every > 0 && (index + 1) % every == 0) executor.allocator().EmptyCache();
    return seconds;
  }

  void Report(const TrialProgram& program, Executor& executor, int64_t index,
              double seconds) {
    StepReport report;
    report.index = index;
    report.seconds = seconds;
    report.loss = executor.scalar(ScalarSlot::kLoss).value_or(0);
    report.grad_norm = executor.scalar(ScalarSlot::kGradNorm).value_or(0);
    report.overflow = executor.scalar(ScalarSlot::kFoundInf).value_or(0) != 0;
    if (index == 0) measurement_.first_loss = report.loss;
    measurement_.last_loss = report.loss;
    const MemoryPeaks& peaks = executor.Peaks();
    report.allocated_bytes = executor.allocator().allocated_bytes();
    report.reserved_bytes = executor.allocator().reserved_bytes();
    report.peak_allocated_bytes = peaks.allocated_bytes;
    report.peak_reserved_bytes = peaks.reserved_bytes;
    report.promoted = static_cast<int64_t>(program.promoted().size());
    const bool finite = !report.overflow && std::isfinite(report.loss);
    if (!finite) {
      report.overflow_in =
          DescribeNotFinite(program.program(), executor, request_.workload, index);
    }
    if (events_.on_step) events_.on_step(report);
    if (finite) return;
    const bool scaled = request_.config.compute_dtype == Dtype::kF16;
    if (!scaled || !std::isfinite(report.loss)) throw NotFinite(report.overflow_in);
    ++measurement_.overflow_steps;
  }

  void NoteSpeed() {
    const TrainConfig& config = request_.config;
    measurement_.steps = static_cast<int64_t>(seconds_.size());
    measurement_.step_seconds = Median(seconds_);
    measurement_.step_seconds_stderr = MedianStderr(seconds_);
    const auto ranks = static_cast<double>(request_.workload.world_size);
    if (pads_) {  // what was learnt from: steps differ, so it is a mean
      tokens_ += static_cast<double>(rows_.tokens());
      timed_seconds_ += seconds_.back();
      measurement_.tokens_per_second = ranks * tokens_ / timed_seconds_;
      return;
    }
    const auto tokens = static_cast<double>(config.micro_batch * config.grad_accum *
                                            request_.workload.seq_len);
    measurement_.tokens_per_second = ranks * tokens / measurement_.step_seconds;
  }

  void NotePeaks(Executor& executor) {
    const MemoryPeaks& peaks = executor.Peaks();
    measurement_.peak_allocated_bytes = peaks.allocated_bytes;
    measurement_.peak_reserved_bytes = peaks.reserved_bytes;
    measurement_.peak_used_bytes = peaks.reserved_bytes;
    measurement_.peak_phase = Name(peaks.phase);
    measurement_.breakdown = peaks.breakdown;
    measurement_.host_bytes = executor.pinned_bytes();
  }

  const TrialRequest& request_;
  const TrialEvents& events_;
  Measurement& measurement_;
  const bool pads_;
  RowLengths row_lengths_;
  StepRows rows_;  // of the step that runs
  std::shared_ptr<DataSource> data_;
  std::unique_ptr<comm::GlooCommunicator> communicator_;
  std::vector<double> seconds_;
  double tokens_ = 0, timed_seconds_ = 0;
};

void NoteShortage(const OutOfMemory& error, Measurement& measurement) {
  const MemoryShortage& shortage = error.shortage();
  measurement.outcome = Outcome::kOutOfMemory;
  measurement.message = error.what();
  if (shortage.capacity_bytes == 0) measurement.message += memory::AddressSpaceHint();
  measurement.requested_bytes = shortage.requested_bytes;
  measurement.free_bytes = shortage.free_bytes;
  measurement.reserved_bytes = shortage.reserved_bytes;
  measurement.allocated_bytes = shortage.allocated_bytes;
  measurement.phase = error.phase();
  measurement.op = error.op();
}

}  // namespace

Measurement RunTrial(const TrialRequest& request, const TrialEvents& events) {
  Measurement measurement;
  measurement.capacity_bytes = request.memory_bytes;
  auto end = [&](Outcome outcome, const std::string& message) {
    measurement.outcome = outcome;
    measurement.message = message;
  };
  try {
    Trial(request, events, measurement).Run();
  } catch (const OutOfMemory& error) {
    NoteShortage(error, measurement);
  } catch (const NotFinite& error) {
    end(Outcome::kNotFinite, error.what());
  } catch (const Cancelled&) {
    end(Outcome::kCancelled, "cancelled after " + std::to_string(measurement.steps) +
                                 " timed steps");
  } catch (const DeviceError& error) {
    end(Outcome::kDeviceLost, error.what());
  } catch (const std::invalid_argument& error) {
    end(Outcome::kInvalid, error.what());
  } catch (const std::bad_alloc&) {
    end(Outcome::kCrashed, "the host has no memory left beside the device's budget");
  }
  return measurement;
}

}  // namespace hbmtune::step
