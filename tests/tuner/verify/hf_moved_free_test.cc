#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/lowering/hf.h"
#include "kernels/program/print.h"
#include "tests/kernels/lowering/moved_free.h"
#include "tuner/verify/verify.h"

// Python often lets go of a tensor after its last use, so that a step computes the same if its free
// moves. What fails then is the comparison with the recording, and it names the place. (Moves ahead
// of a use are tests/kernels/lowering/hf_mutation_test.cc.)
namespace hbmtune::tuner {
namespace {

// What of a Program a recording shows: allocations and frees on the device, and where phases begin.
std::vector<bool> Shown(const Program& program) {
  std::vector<bool> shown(program.code.size()), on_device(program.storage_count);
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (const auto* allocate = std::get_if<Allocate>(&instruction)) {
      shown[i] = on_device[allocate->storage] = allocate->space == MemorySpace::kDevice;
    } else if (const auto* freed = std::get_if<Free>(&instruction)) {
      shown[i] = on_device[freed->storage];
    } else if (const auto* phase = std::get_if<Phase>(&instruction)) {
      shown[i] = phase->kind != PhaseKind::kLoss;  // a part of the forward pass
    }
  }
  return shown;
}

// Where the free goes: ahead of the op before it, and of those before that one, until it has
// passed something that is shown. Nothing if an op that uses the storage comes first.
std::optional<size_t> Earlier(const Program& program, const std::vector<bool>& shown,
                              size_t free) {
  const StorageId storage = std::get<Free>(program.code[free]).storage;
  bool passed = false;
  for (size_t p = free; p-- > program.steady_step;) {
    passed = passed || shown[p];
    if (!testing::IsOp(program.code[p])) continue;
    if (testing::Uses(program, program.code[p], storage)) return std::nullopt;
    if (passed) return p;
  }
  return std::nullopt;
}

struct Count {
  int frees = 0, moved = 0;
};

void MoveEachFree(const Recording& recording, Count& count) {
  const Program program =
      lowering::LowerHf(recording.workload, recording.config, recording.options);
  ASSERT_TRUE(VerifyProgram(recording, program).same_events) << recording.name;
  const std::vector<bool> shown = Shown(program);
  for (size_t i : testing::SteadyFrees(program)) {
    if (!shown[i]) continue;
    ++count.frees;
    const auto to = Earlier(program, shown, i);
    if (!to) continue;
    ++count.moved;
    const Verification broken = VerifyProgram(recording, testing::Moved(program, i, *to));
    EXPECT_FALSE(broken.same_events)
        << recording.name << ": " << i << " " << Describe(program, program.code[i]);
    EXPECT_TRUE(broken.first_difference && broken.first_difference->step > 0);
  }
}

class HfMovedFree : public ::testing::TestWithParam<const char*> {};

TEST_P(HfMovedFree, IsNamedByTheComparison) {
  std::ifstream file(std::string(HBMTUNE_TEST_DATA "/hf/") + GetParam() + ".json");
  const Json whole = Json::parse(file);
  Count count;
  for (const Json& run : whole.at("runs")) MoveEachFree(ReadRecording(run), count);
  std::cout << count.frees << " frees, " << count.moved
            << " of them moved past no use of theirs: each is named\n";
  EXPECT_GT(count.moved, 500);
}

INSTANTIATE_TEST_SUITE_P(Recordings, HfMovedFree,
                         ::testing::Values("llama", "mistral", "qwen2", "gpt2", "falcon",
                                           "falcon_new", "ddp", "offload", "random"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hbmtune::tuner
