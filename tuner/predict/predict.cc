#include "tuner/predict/predict.h"

#include <algorithm>

#include "kernels/core/units.h"
#include "tuner/predict/sums.h"

namespace hbmtune {
namespace {

// Until errors are recorded: published sums miss by up to 15 % (Aceso's figure for estimators of
// this kind), and they leave out fragmentation, so the upper bound is wider.
constexpr Interval kSumsInterval{-0.15, 0.25};

absl::Status Check(const Workload& workload, const TrainConfig& config) {
  if (config.micro_batch < 1 || config.grad_accum < 1) {
    return absl::InvalidArgumentError("micro_batch and grad_accum must be at least 1");
  }
  if (workload.seq_len < 1 || workload.model.layers < 1) {
    return absl::InvalidArgumentError("seq_len and the model's layers must be at least 1");
  }
  if (workload.model.max_positions > 0 && workload.seq_len > workload.model.max_positions) {
    return absl::InvalidArgumentError("seq_len " + std::to_string(workload.seq_len) +
                                      " is longer than the model's " +
                                      std::to_string(workload.model.max_positions) + " positions");
  }
  return absl::OkStatus();
}

// "memory (weights 24.2 GiB, logits 8.0 GiB)": the two largest owners.
std::string LimitedByMemory(const Estimate& estimate) {
  std::vector<CategoryBytes> owners = estimate.breakdown;
  std::sort(owners.begin(), owners.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string text = "memory (";
  for (size_t i = 0; i < owners.size() && i < 2; ++i) {
    text += (i > 0 ? ", " : "") + std::string(Name(owners[i].category)) + " " +
            FormatBytes(owners[i].bytes);
  }
  return text + ")";
}

std::string LimitedByTime(const predict::TimeSums& time) {
  if (time.launch > time.device() + time.collectives + time.copies) return "launches by the host";
  std::pair<double, std::string_view> parts[] = {{time.matmul, "matrix products"},
                                                 {time.attention, "attention"},
                                                 {time.memory, "memory bandwidth"},
                                                 {time.optimizer, "the optimizer"},
                                                 {time.collectives, "collectives"},
                                                 {time.copies, "copies to and from the host"}};
  return std::string(std::max_element(std::begin(parts), std::end(parts))->second);
}

}  // namespace

int64_t CeilingBytes(const Ceiling& ceiling, const device::DeviceProfile& profile) {
  if (ceiling.device_bytes > 0) return ceiling.device_bytes;
  int64_t capacity = ceiling.capacity_bytes > 0
                         ? ceiling.capacity_bytes
                         : static_cast<int64_t>(profile.capacity_bytes.value);
  if (profile.is_host()) return capacity;
  return std::max<int64_t>(0, capacity - std::max(capacity / 20, 2 * kGiB));
}

absl::StatusOr<Estimate> Predict(const Workload& workload, const TrainConfig& config,
                                 const device::DeviceProfile& profile, const Ceiling& ceiling) {
  if (auto status = Check(workload, config); !status.ok()) return status;
  Estimate estimate;
  estimate.capacity_bytes = ceiling.capacity_bytes > 0
                                ? ceiling.capacity_bytes
                                : static_cast<int64_t>(profile.capacity_bytes.value);
  if (estimate.capacity_bytes <= 0) {
    return absl::FailedPreconditionError("the host has no memory of its own to estimate against: "
                                         "give a memory budget");
  }
  estimate.ceiling_bytes = CeilingBytes(ceiling, profile);

  predict::MemorySums memory = predict::SumMemory(workload, config);
  int64_t workspace = 2 * profile.workspace_bytes();  // forward and autograd thread
  memory.peak[static_cast<size_t>(Category::kWorkspace)] += workspace;
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (memory.peak[i] == 0) continue;
    estimate.breakdown.push_back({static_cast<Category>(i), memory.peak[i]});
  }
  estimate.peak_allocated_bytes = memory.peak_bytes + workspace;
  int64_t segment = 2 * kMiB;
  estimate.peak_reserved_bytes = (estimate.peak_allocated_bytes + segment - 1) / segment * segment;
  estimate.peak_used_bytes = estimate.peak_reserved_bytes +
                             static_cast<int64_t>(profile.context_bytes.value) +
                             profile.library_bytes(workload.world_size);
  estimate.peak_phase = std::string(Name(memory.phase));
  estimate.host_bytes = memory.host_bytes;

  predict::TimeSums time = predict::SumTime(workload, config, profile);
  estimate.step_seconds = time.step();
  double tokens = 1.0 * config.micro_batch * workload.seq_len * config.grad_accum *
                  std::max<int64_t>(1, workload.world_size);
  estimate.tokens_per_second = tokens / estimate.step_seconds;
  estimate.interval = kSumsInterval;

  bool host_fits = ceiling.host_bytes == 0 || estimate.host_bytes <= ceiling.host_bytes;
  bool device_fits = estimate.peak_used_bytes <= estimate.ceiling_bytes;
  estimate.fits = host_fits && device_fits;
  estimate.limited_by = !device_fits ? LimitedByMemory(estimate)
                        : !host_fits ? "host memory"
                                     : LimitedByTime(time);
  return estimate;
}

}  // namespace hbmtune
