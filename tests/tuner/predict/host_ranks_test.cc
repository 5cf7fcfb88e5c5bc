#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "kernels/core/units.h"
#include "kernels/step/trial.h"
#include "tests/support/temp_dir.h"
#include "tests/tuner/predict/small_job.h"
#include "tuner/predict/predict.h"

// On several ranks too a dry run walks the Program that each rank runs.
namespace hbmtune {
namespace {

struct Peaks {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

// One process a rank, over Gloo. Of all ranks the highest peaks.
Peaks RunRanks(const Workload& workload, const TrainConfig& config) {
  testing::TempDir dir;
  std::vector<pid_t> children;
  auto result = [&](int64_t rank) { return dir.path() + "/peaks" + std::to_string(rank); };
  for (int64_t rank = 0; rank < workload.world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      step::TrialRequest request;
      request.workload = workload;
      request.config = config;
      request.memory_bytes = kGiB;
      request.rank = rank;
      request.rendezvous_path = dir.path() + "/meet";
      request.min_steps = request.max_steps = 2;
      request.threads = 1;
      const Measurement measured = step::RunTrial(request);
      if (measured.outcome != Outcome::kOk) std::fprintf(stderr, "%s\n", measured.message.c_str());
      std::ofstream(result(rank)) << measured.peak_allocated_bytes << " "
                                  << measured.peak_reserved_bytes;
      std::_Exit(measured.outcome == Outcome::kOk ? 0 : 1);
    }
    children.push_back(pid);
  }
  Peaks worst;
  for (int64_t rank = 0; rank < workload.world_size; ++rank) {
    int status = 0;
    waitpid(children[static_cast<size_t>(rank)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank;
    Peaks peaks;
    std::ifstream(result(rank)) >> peaks.allocated >> peaks.reserved;
    worst.allocated = std::max(worst.allocated, peaks.allocated);
    worst.reserved = std::max(worst.reserved, peaks.reserved);
  }
  return worst;
}

void ExpectSamePeaks(const Workload& workload, const TrainConfig& config) {
  SCOPED_TRACE(::testing::Message() << workload.world_size << " ranks, stage "
                                    << config.zero.stage << ", accumulation "
                                    << config.grad_accum << ", checkpoint every "
                                    << config.checkpoint.every);
  const Peaks measured = RunRanks(workload, config);
  auto estimate =
      Predict(workload, config, *device::FindProfile("host"), {.capacity_bytes = kGiB});
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  EXPECT_EQ(estimate->peak_allocated_bytes, measured.allocated);
  EXPECT_EQ(estimate->peak_reserved_bytes, measured.reserved);
}

TEST(PredictOnHostRanks, PeaksAreThoseOfTheWorstRankToTheByte) {
  for (int64_t ranks : {2, 4}) {
    for (int64_t stage : {0, 1, 2, 3}) {
      for (int64_t grad_accum : {1, 2}) {
        TrainConfig config;
        config.micro_batch = 2;
        config.zero.stage = stage;
        config.zero.reduce_bucket_size = config.zero.allgather_bucket_size = 20'000;
        config.zero.param_persistence_threshold = 1000;
        config.grad_accum = grad_accum;
        config.checkpoint.every = grad_accum - 1;
        ExpectSamePeaks(SmallJob(ranks), config);
      }
    }
  }
}

TEST(PredictOnHostRanks, AlsoInBf16WithMastersALoraAndOverlap) {
  for (int64_t stage : {1, 3}) {
    TrainConfig config;
    config.zero.stage = stage;
    config.zero.overlap_comm = true;
    config.param_dtype = config.compute_dtype = Dtype::kBf16;
    config.master_weights = true;
    ExpectSamePeaks(SmallJob(2), config);
    Workload lora = SmallJob(2);
    lora.lora.rank = 8;
    config = {};
    config.zero.stage = stage;
    ExpectSamePeaks(lora, config);
  }
}

}  // namespace
}  // namespace hbmtune
