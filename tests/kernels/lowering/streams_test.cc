// Nothing is freed while another stream may still use it.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels/lowering/fused.h"
#include "kernels/program/print.h"
#include "tests/kernels/lowering/small_models.h"

namespace hbmtune::testing {
namespace {

// Walks a Program and remembers, by stream, what the compute stream has not waited for.
class Waits {
 public:
  explicit Waits(const Program& program) : program_(program) {}

  // The first free that comes too early, as text; empty if there is none.
  std::string FirstEarlyFree() {
    for (position_ = 0; position_ < program_.code.size(); ++position_) {
      const Instruction& instruction = program_.code[position_];
      const auto* freed = std::get_if<Free>(&instruction);
      if (freed != nullptr && InUse(freed->storage)) {
        return std::to_string(position_) + " " + Describe(program_, instruction);
      }
      Note(instruction);
    }
    return {};
  }

 private:
  bool InUse(StorageId storage) {
    for (const auto& [stream, position] : used_[storage]) {
      if (position > waited_[stream]) return true;
    }
    return false;
  }

  void Use(ViewId view, StreamId stream) {
    if (stream != kComputeStream) used_[program_.views[view].storage][stream] = position_;
  }

  void Note(const Instruction& instruction) {
    if (const auto* run = std::get_if<Run>(&instruction)) {
      for (int i = 0; i < run->inputs + run->outputs; ++i) {
        Use(program_.args[run->first_arg + i], run->stream);
      }
    } else if (const auto* copy = std::get_if<Copy>(&instruction)) {
      Use(copy->from, copy->stream);
      Use(copy->to, copy->stream);
    } else if (const auto* collective = std::get_if<Collective>(&instruction)) {
      Use(collective->from, collective->stream);
      Use(collective->to, collective->stream);
    } else if (const auto* record = std::get_if<Record>(&instruction)) {
      recorded_[record->event] = {record->stream, position_};
    } else if (const auto* wait = std::get_if<Wait>(&instruction)) {
      const auto [stream, position] = recorded_.at(wait->event);
      if (wait->stream == kComputeStream) waited_[stream] = std::max(waited_[stream], position);
    } else if (const auto* allocate = std::get_if<Allocate>(&instruction)) {
      used_.erase(allocate->storage);
    }
  }

  const Program& program_;
  size_t position_ = 0;
  std::map<StorageId, std::map<StreamId, size_t>> used_;  // last position on each other stream
  std::map<EventId, std::pair<StreamId, size_t>> recorded_;
  std::map<StreamId, size_t> waited_;
};

// Adapters so small that some ranks own no part of any are in it.
TEST(Streams, NothingIsFreedWhileAnotherStreamUsesIt) {
  int programs = 0;
  for (const char* model : {"llama", "falcon", "gpt2_dropout", "llama_lora"}) {
    for (int64_t stage : {0, 1, 2, 3}) {
      for (int64_t rank : {0, 1, 3}) {
        for (int64_t bucket : {1, 1500, 1'000'000}) {
          for (const bool plain : {true, false}) {
            Workload workload = SmallWorkload(model);
            workload.seq_len = 64;
            workload.world_size = 4;
            TrainConfig config;
            config.micro_batch = 4;
            config.grad_accum = 2;
            config.zero.stage = stage;
            config.zero.overlap_comm = true;
            config.zero.reduce_scatter = plain;
            config.zero.contiguous_gradients = plain;
            config.zero.reduce_bucket_size = config.zero.allgather_bucket_size = bucket;
            config.zero.param_persistence_threshold = 100;
            config.offload.optimizer =
                plain ? OptimizerOffload::kCpuAdam : OptimizerOffload::kStream;
            config.offload.activations =
                plain ? ActivationOffload::kLayers : ActivationOffload::kNone;
            lowering::FusedOptions options;
            options.rank = rank;
            const Program program = lowering::LowerFused(workload, config, options);
            EXPECT_EQ(Waits(program).FirstEarlyFree(), "")
                << model << " stage " << stage << " rank " << rank << " bucket " << bucket;
            ++programs;
          }
        }
      }
    }
  }
  EXPECT_EQ(programs, 4 * 4 * 3 * 3 * 2);
}

}  // namespace
}  // namespace hbmtune::testing
