// Ranks as processes: whatever the stage and the buckets, the same numbers to the bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>

#include "kernels/model/parameters.h"
#include "kernels/step/trial.h"
#include "tests/kernels/lowering/step_run.h"
#include "tests/kernels/step/rank_processes.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

struct Buckets {
  int64_t elements;
  bool overlap, reduce_scatter, contiguous;
};

class Ranks : public ::testing::TestWithParam<int64_t> {};

TEST_P(Ranks, AnyStageAndBucketIsBitwiseTheSame) {
  const Buckets ways[] = {{1, false, true, true}, {1500, true, false, false},
                          {1'000'000, true, true, true}};
  for (const char* model : {"llama", "falcon", "llama_lora"}) {
    Job job = MakeJob(model, GetParam());
    const auto whole = RunRanks(job);
    for (int64_t stage : {0, 1, 2, 3}) {
      for (const Buckets& way : ways) {
        if (model != std::string("llama") && way.elements != 1500) continue;
        job.config.zero.stage = stage;
        job.config.zero.reduce_bucket_size = way.elements;
        job.config.zero.allgather_bucket_size = way.elements;
        job.config.zero.overlap_comm = way.overlap;
        job.config.zero.reduce_scatter = way.reduce_scatter;
        job.config.zero.contiguous_gradients = way.contiguous;
        ExpectSame(whole, RunRanks(job),
                   std::string(model) + " stage " + std::to_string(stage) + " bucket " +
                       std::to_string(way.elements) + " ");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, ::testing::Values(2, 4));

TEST(RanksTogether, GradientsAreThoseOfOneRankWithAllTheData) {
  for (int64_t ranks : {2, 4}) {
    Job job = MakeJob("llama", ranks);
    job.options.keep_gradients = true;
    const auto parallel = RunRanks(job);
    // One rank reads the micro-batches of all, one after the other.
    Job alone = MakeJob("llama", 1, ranks);
    alone.options.keep_gradients = true;
    alone.data_of_ranks = ranks;
    const auto single = RunRanks(alone);
    const size_t count = 1 + static_cast<size_t>(ParameterCount(job.workload.model));
    const auto a = Doubles(parallel[0], count), b = Doubles(single[0], count);
    EXPECT_NEAR(a[0], b[0], 1e-5 * b[0]);
    EXPECT_LT(RelativeError({a.begin() + 1, a.end()}, {b.begin() + 1, b.end()}), 1e-5);
  }
}

// Bytes of one owner when the optimizer begins its work in a steady step of rank 0.
int64_t BytesAtUpdate(int64_t stage, Category category) {
  Job job = MakeJob("llama", 4);
  job.config.zero.stage = stage;
  const Program program = lowering::LowerFused(job.workload, job.config);
  std::map<StorageId, int64_t> live;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const auto* phase = std::get_if<Phase>(&program.code[i]);
    if (i > program.steady_step && phase != nullptr && phase->kind == PhaseKind::kClip) break;
    if (const auto* a = std::get_if<Allocate>(&program.code[i])) {
      live[a->storage] = a->category == category ? a->bytes : 0;
    } else if (const auto* f = std::get_if<Free>(&program.code[i])) {
      live[f->storage] = 0;
    }
  }
  int64_t bytes = 0;
  for (const auto& [storage, size] : live) bytes += size;
  return bytes;
}

TEST(RanksTogether, StagesCutOptimizerGradientsAndWeights) {
  // Four ranks; parts are padded to 256 elements, and small weights stay whole.
  EXPECT_LT(BytesAtUpdate(1, Category::kOptimizer), BytesAtUpdate(0, Category::kOptimizer) / 2);
  EXPECT_LT(BytesAtUpdate(1, Category::kGradients), BytesAtUpdate(0, Category::kGradients) / 2);
  EXPECT_EQ(BytesAtUpdate(2, Category::kWeights), BytesAtUpdate(0, Category::kWeights));
  EXPECT_LT(BytesAtUpdate(3, Category::kWeights), BytesAtUpdate(0, Category::kWeights) / 2);
}

// Over a steady step of rank 0 in stage 3.
struct Gathers {
  int64_t peak_bytes = 0;   // of whole weights at once
  int64_t count = 0;        // all-gathers in the micro-batch
  int64_t ahead = 0;        // of which the compute stream had ops to run before it waited
};

Gathers GathersOf(const ZeroConfig& zero) {
  Job job = MakeJob("llama", 2);
  job.config.zero = zero;
  job.config.zero.stage = 3;
  job.config.zero.param_persistence_threshold = 0;
  const Program program = lowering::LowerFused(job.workload, job.config);
  Gathers gathers;
  std::map<StorageId, int64_t> live;
  std::map<EventId, size_t> recorded;  // on the communication stream, and when
  std::set<StorageId> gathered;
  int64_t bytes = 0;
  size_t ops = 0;
  for (size_t i = program.steady_step; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (const auto* phase = std::get_if<Phase>(&instruction)) {
      if (phase->kind == PhaseKind::kReduce) break;
    } else if (const auto* a = std::get_if<Allocate>(&instruction)) {
      if (a->category == Category::kCommunication) live[a->storage] = a->bytes;
    } else if (const auto* f = std::get_if<Free>(&instruction)) {
      if (gathered.erase(f->storage) > 0) bytes -= live[f->storage];
    } else if (const auto* c = std::get_if<Collective>(&instruction)) {
      if (c->kind != CollectiveKind::kAllGather) continue;
      ++gathers.count;
      const StorageId storage = program.views[c->to].storage;
      if (gathered.insert(storage).second) bytes += live[storage];
      gathers.peak_bytes = std::max(gathers.peak_bytes, bytes);
    } else if (const auto* r = std::get_if<Record>(&instruction)) {
      if (r->stream == kCommStream) recorded[r->event] = ops;
    } else if (const auto* w = std::get_if<Wait>(&instruction)) {
      if (w->stream == kComputeStream && recorded.contains(w->event)) {
        gathers.ahead += recorded[w->event] < ops;
      }
    } else if (const auto* run = std::get_if<Run>(&instruction)) {
      ops += run->stream == kComputeStream;
    }
  }
  return gathers;
}

TEST(RanksTogether, StageThreeGathersAheadWithinItsLimits) {
  // 3 layers of 7 matrices of 512 to 1,536 elements, embedding and head of 2,048: 26,624 in all.
  ZeroConfig zero;
  zero.overlap_comm = true;
  zero.max_reuse_distance = 0;
  zero.prefetch_bucket_size = 0;
  const Gathers none = GathersOf(zero);
  EXPECT_EQ(none.count, 1 + 2 * 21 + 1);  // the embedding forward, layers in both passes, the head
  EXPECT_LE(none.peak_bytes, 4 * 10'000);  // a layer, padded to parts of 256
  int64_t ahead_before = none.ahead;
  for (const int64_t bucket : {1'600, 4'000, 20'000}) {
    zero.prefetch_bucket_size = bucket;
    const Gathers some = GathersOf(zero);
    EXPECT_EQ(some.count, none.count);
    EXPECT_GT(some.ahead, ahead_before);
    EXPECT_GT(some.peak_bytes, none.peak_bytes);
    EXPECT_LE(some.peak_bytes, none.peak_bytes + 4 * (bucket + 2'048));
    ahead_before = some.ahead;
  }
  // Memory follows max_live_parameters, down to the layer that is in use.
  int64_t peak_before = 0;
  zero.max_reuse_distance = 1'000'000;
  for (const int64_t live : {8'000, 12'000, 20'000, 1'000'000}) {
    zero.max_live_parameters = live;
    const Gathers some = GathersOf(zero);
    EXPECT_GT(some.peak_bytes, peak_before);
    EXPECT_LE(some.peak_bytes, 4 * (live + 2'048));
    peak_before = some.peak_bytes;
  }
  EXPECT_EQ(GathersOf(zero).count, 23);  // every matrix once: it stays until the backward pass
}

TEST(RanksTogether, WithCheckpointingOffloadAndMasters) {
  Job job = MakeJob("llama", 2, 2);
  job.config.param_dtype = job.config.compute_dtype = Dtype::kBf16;
  job.config.master_weights = true;
  job.config.zero.stage = 2;
  const auto plain = RunRanks(job);
  for (int64_t stage : {2, 3}) {
    job.config.zero.stage = stage;
    job.config.checkpoint.every = 2;
    for (OptimizerOffload offload :
         {OptimizerOffload::kNone, OptimizerOffload::kStream, OptimizerOffload::kCpuAdam}) {
      job.config.offload.optimizer = offload;
      ExpectSame(plain, RunRanks(job), "stage " + std::to_string(stage) + " ");
    }
  }
}

// What stage 3 gathers ahead and keeps changes no bit; nor does checkpointing, which needs weights
// once more.
TEST_P(Ranks, GatheringAheadIsBitwiseTheSame) {
  for (const char* model : {"gpt2", "llama_lora"}) {
    Job job = MakeJob(model, GetParam(), 2);
    job.config.zero.stage = 2;
    const auto whole = RunRanks(job);
    job.config.zero.stage = 3;
    for (const bool overlap : {true, false}) {
      if (!overlap && GetParam() > 2) continue;  // the same order, on one stream: seen with two
      for (const int64_t live : {1, 6'000, 1'000'000}) {
        job.config.zero.overlap_comm = overlap;
        job.config.zero.max_live_parameters = live;
        job.config.zero.prefetch_bucket_size = overlap ? 3'000 : 1'000'000;
        job.config.zero.max_reuse_distance = live == 1'000'000 ? 8'000 : 1'000'000;
        job.config.checkpoint.every = live == 6'000 ? 1 : 0;
        ExpectSame(whole, RunRanks(job), std::string(model) + " live " + std::to_string(live));
      }
    }
  }
}

// With accumulation stages 0 and 1 add up micro-batches before ranks, 2 and 3 ranks before
// micro-batches, as DeepSpeed does: each pair is one sequence of additions, whatever the buckets,
// the recomputation and the offload; between the pairs there is rounding.
TEST_P(Ranks, WithAccumulationEachPairOfStagesIsBitwiseTheSame) {
  for (const char* model : {"llama", "llama_lora"}) {
    Job job = MakeJob(model, GetParam(), 3);
    std::vector<std::string> whole[2];
    for (int64_t stage : {0, 1, 2, 3}) {
      for (int64_t bucket : {1500, 1'000'000}) {
        job.config.zero.stage = stage;
        job.config.zero.reduce_bucket_size = job.config.zero.allgather_bucket_size = bucket;
        job.config.zero.overlap_comm = bucket == 1500;
        job.config.checkpoint.every = bucket == 1500 ? 0 : 2;
        job.config.offload.optimizer =
            bucket == 1500 ? OptimizerOffload::kNone : OptimizerOffload::kCpuAdam;
        const auto bytes = RunRanks(job);
        if (whole[stage / 2].empty()) whole[stage / 2] = bytes;
        ExpectSame(whole[stage / 2], bytes,
                   std::string(model) + " stage " + std::to_string(stage) + " bucket " +
                       std::to_string(bucket) + " ");
      }
    }
    const auto a = Doubles(whole[0][0], 3), b = Doubles(whole[1][0], 3);  // the losses
    EXPECT_LT(RelativeError(a, b), 1e-6) << model;
  }
}

TEST(RanksTogether, EightBitAdamwIsTheSameInEveryStage) {
  Job job = MakeJob("llama", 2);
  job.workload.optimizer = Optimizer::kAdamw8bit;
  const auto whole = RunRanks(job);
  for (int64_t stage : {1, 2, 3}) {
    job.config.zero.stage = stage;
    ExpectSame(whole, RunRanks(job), "stage " + std::to_string(stage) + " ");
  }
}

// --- whole trials -----------------------------------------------------------------------------

step::TrialRequest TrialOf(const Job& job, int rank, const std::string& folder) {
  step::TrialRequest request;
  request.workload = job.workload;
  request.config = job.config;
  request.memory_bytes = 64 << 20;
  request.rank = rank;
  request.rendezvous_path = folder + "/meet";
  request.min_steps = request.max_steps = 3;
  return request;
}

// A process for each rank that runs a trial and then judges it.
std::vector<pid_t> RunTrials(const Job& job, int ranks, const std::string& folder,
                             const std::function<void(int, step::TrialRequest&)>& prepare,
                             const std::function<bool(int, const step::StepReport&)>& on_step,
                             const std::function<bool(const Measurement&)>& good) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      step::TrialRequest request = TrialOf(job, rank, folder);
      prepare(rank, request);
      step::TrialEvents events;
      events.on_step = [&](const step::StepReport& report) {
        if (!on_step(rank, report)) std::_Exit(0);
      };
      const Measurement m = step::RunTrial(request, events);
      if (!good(m)) std::fprintf(stderr, "rank %d: %s\n", rank, m.message.c_str());
      std::_Exit(good(m) ? 0 : 1);
    }
    children.push_back(pid);
  }
  return children;
}

void ExpectGood(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

void ForEver(int, step::TrialRequest& request) {
  request.min_steps = request.max_steps = 1'000'000;
}
bool GoOn(int, const step::StepReport&) { return true; }
bool IsOk(const Measurement& m) { return m.outcome == Outcome::kOk; }

TEST(RanksTogether, EveryTrialNamesTheRankThatDied) {
  TempDir dir;
  auto dies = [](int rank, const step::StepReport& report) {
    return rank != 1 || report.index != 2;
  };
  auto named = [](const Measurement& m) {
    return m.outcome == Outcome::kDeviceLost && m.message == "rank 1 has ended before its time";
  };
  for (pid_t child : RunTrials(MakeJob("llama", 3), 3, dir.path(), ForEver, dies, named)) {
    ExpectGood(child);
  }
}

// A rank that stands still, for ever: the others wait for 10 s, and each names it.
TEST(RanksTogether, EveryTrialNamesTheRankThatStalled) {
  TempDir dir;
  auto stalls = [](int rank, const step::StepReport& report) {
    if (rank == 1 && report.index == 3) raise(SIGSTOP);
    return true;
  };
  auto named = [](const Measurement& m) {
    return m.outcome == Outcome::kDeviceLost && m.message == "rank 1 does not answer any more";
  };
  const auto children = RunTrials(MakeJob("llama", 3), 3, dir.path(), ForEver, stalls, named);
  ExpectGood(children[0]);
  ExpectGood(children[2]);
  kill(children[1], SIGKILL);
  waitpid(children[1], nullptr, 0);
}

// A budget of time is over for one rank before it is for another.
TEST(RanksTogether, EndAfterTheSameStep) {
  TempDir dir;
  auto budget = [](int rank, step::TrialRequest& request) {
    request.max_steps = 1'000'000;
    request.step_budget_seconds = rank == 0 ? 0.2 : 1e9;
  };
  for (pid_t child : RunTrials(MakeJob("llama", 2), 2, dir.path(), budget, GoOn, IsOk)) {
    ExpectGood(child);
  }
}

// Every rank has rows, shapes and Programs of its own.
TEST(RanksTogether, PadTheirOwnRows) {
  for (int64_t stage : {0, 3}) {
    TempDir dir;
    Job job = MakeJob("llama", 2);
    job.workload.sequences = {SequenceLayout::kPadded, 2, 0.4, SequenceOrder::kLongestLate, 2};
    job.config.zero.stage = stage;
    auto steps = [](int, step::TrialRequest& request) {
      request.min_steps = request.max_steps = 6;
    };
    for (pid_t child : RunTrials(job, 2, dir.path(), steps, GoOn, IsOk)) ExpectGood(child);
  }
}

TEST(RanksTogether, BadWorldsAreRefused) {
  Job job = MakeJob("llama", 2);
  auto message = [&] { return step::RunTrial(TrialOf(job, 0, "/nonexistent")).message; };
  job.config.zero.allgather_bucket_size = 0;
  EXPECT_THAT(message(), HasSubstr("zero.allgather_bucket_size must be at least 1, got 0"));
  job = MakeJob("llama", 2);
  job.config.zero.max_live_parameters = -1;
  EXPECT_THAT(message(), HasSubstr("zero.max_live_parameters must be at least 0, got -1"));
  job = MakeJob("llama", 2);
  job.config.zero.reduce_bucket_size = 0;
  EXPECT_THAT(message(), HasSubstr("zero.reduce_bucket_size must be at least 1, got 0"));
  job = MakeJob("llama", 2);
  job.config.zero.stage = 4;
  EXPECT_THAT(message(), HasSubstr("zero.stage must be 0, 1, 2 or 3, got 4"));
  job = MakeJob("llama", 3);
  job.workload.global_batch = 16;
  EXPECT_THAT(message(), HasSubstr("world_size 3 does not divide global_batch 16"));
  job = MakeJob("llama", 2);
  EXPECT_THAT(message(), HasSubstr("ranks cannot meet in /nonexistent/meet"));
}

}  // namespace
}  // namespace hbmtune::testing
