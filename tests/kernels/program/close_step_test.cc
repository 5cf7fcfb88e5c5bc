#include "kernels/program/close_step.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <variant>
#include <vector>

namespace hbmtune {
namespace {

constexpr StorageId kKept = 0, kGathered = 1, kTemporary = 2, kAnew = 3;

Allocate Take(StorageId storage, int64_t bytes) {
  return {storage, 0, bytes, Category::kWeights, MemorySpace::kDevice, kComputeStream};
}

// A first step that leaves kGathered, and a steady one that frees it and takes kAnew. View 1 was
// used for a tensor of the first step that had the same id.
Program MakeProgram(int64_t anew_bytes = 512) {
  Program program;
  program.views.resize(2);
  program.views[0].storage = kGathered;
  program.views[1].storage = kAnew;
  program.args = {1, 0, 1};
  auto run = [](uint32_t arg) { return Run{nullptr, arg, 1, 0, 0, kComputeStream}; };
  program.code = {Take(kKept, 64), Take(kAnew, 256), run(0), Free{kAnew, 0},
                  Take(kGathered, 512)};
  program.steady_step = program.code.size();
  for (const Instruction& instruction :
       std::vector<Instruction>{run(1), Free{kGathered, 0}, Take(kTemporary, 128),
                                Take(kAnew, anew_bytes), Free{kTemporary, 0}, run(2)}) {
    program.code.push_back(instruction);
  }
  program.storage_count = 4;
  return program;
}

TEST(CloseSteadyStep, GivesTheNewTensorTheIdOfTheOld) {
  Program program = MakeProgram();
  CloseSteadyStep(program);
  EXPECT_EQ(std::get<Allocate>(program.code[8]).storage, kGathered);
  EXPECT_EQ(program.views[program.args[2]].storage, kGathered);
  EXPECT_EQ(program.views[program.args[0]].storage, kAnew) << "the first step keeps its ids";
  EXPECT_EQ(std::get<Free>(program.code[9]).storage, kTemporary);
  const Program closed = program;
  CloseSteadyStep(program);  // nothing more to do
  EXPECT_EQ(program.args, closed.args);
  EXPECT_EQ(std::get<Allocate>(program.code[8]).storage, kGathered);
}

TEST(CloseSteadyStep, RefusesWhatDoesNotReplace) {
  Program other_size = MakeProgram(513);
  EXPECT_THROW(CloseSteadyStep(other_size), std::logic_error);
  Program leaks = MakeProgram();
  leaks.code.push_back(Take(4, 64));
  EXPECT_THROW(CloseSteadyStep(leaks), std::logic_error);
  Program beside = MakeProgram();  // the old one goes after the new one came
  std::swap(beside.code[6], beside.code[8]);
  EXPECT_THROW(CloseSteadyStep(beside), std::logic_error);
}

}  // namespace
}  // namespace hbmtune
