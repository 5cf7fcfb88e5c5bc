#include "kernels/program/tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hbmtune {
namespace {

using ::testing::ElementsAre;

void Nothing(const OpArgs&) {}
Cost Free0(const OpArgs&) { return {}; }
constexpr OpKind kAdd{"add", Nothing, Free0, Nothing};
constexpr OpKind kAddInPlace{"add_", Nothing, Free0, Nothing};
constexpr OpKind kFill{"fill", Nothing, Free0, Nothing};
constexpr OpKind kCopy{"copy", Nothing, Free0, Nothing};
constexpr OpKind kMul{"mul", Nothing, Free0, Nothing};
constexpr TapeOps kOps{&kAdd, &kAddInPlace, &kFill, &kCopy};

// "+0 mul +1 -0": allocations, ops and frees, in order.
std::vector<std::string> Trace(const Program& program) {
  std::vector<std::string> lines;
  for (const Instruction& instruction : program.code) {
    if (auto* a = std::get_if<Allocate>(&instruction)) {
      lines.push_back("+" + std::to_string(a->storage));
    }
    if (auto* f = std::get_if<Free>(&instruction)) {
      lines.push_back("-" + std::to_string(f->storage));
    }
    if (auto* r = std::get_if<Run>(&instruction)) lines.push_back(std::string(r->op->name));
  }
  return lines;
}

Tensor Make(Tape& tape) { return tape.Empty(Dtype::kF32, {4}, Category::kActivations); }

// y = x * w, saving both.
Tensor Mul(Tape& tape, const Tensor& x, const Tensor& w) {
  Tensor y = Make(tape);
  tape.Run(kMul, {x, w}, {y});
  tape.Attach("mul", {x, w}, y, [&tape, x = tape.Detach(x), w = tape.Detach(w)](auto grads) {
    Tensor dx = Make(tape);
    tape.Run(kMul, {grads[0], w}, {dx});
    Tensor dw = Make(tape);
    tape.Run(kMul, {grads[0], x}, {dw});
    return std::vector<Tensor>{dx, dw};
  });
  return y;
}

TEST(Tape, FreesAStorageWhenItsLastViewIsGone) {
  Program program;
  Tape tape(program, kOps);
  {
    Tensor view;
    {
      Tensor base = Make(tape);
      view = tape.ViewOf(base, {2}, {1});
    }
    EXPECT_THAT(Trace(program), ElementsAre("+0"));
  }
  EXPECT_THAT(Trace(program), ElementsAre("+0", "-0"));
}

TEST(Tape, RefusesATensorThatNobodyCanMean) {
  Program program;
  Tape tape(program, kOps);
  const int64_t many = int64_t{1} << 31;  // 2^31 · 2^31 · 4 bytes are over what int64 counts
  EXPECT_THROW(tape.Empty(Dtype::kF32, {many, many}, Category::kActivations),
               std::invalid_argument);
  EXPECT_NO_THROW(tape.Empty(Dtype::kF32, {many, 1 << 15}, Category::kActivations));
}

TEST(Tape, RefusesAStepWithoutEnd) {
  Program program;
  Tape tape(program, kOps);
  const Tensor x = Make(tape), y = Make(tape);
  const auto run = [&] {
    for (int i = 0; i < 3'000'000; ++i) tape.Run(kMul, {x, x}, {y});
  };
  EXPECT_THROW(run(), std::invalid_argument);
}

TEST(Tape, KeepsWhatANodeSavedUntilItHasRun) {
  Program program;
  Tape tape(program, kOps);
  Tensor w = Make(tape);
  w.set_requires_grad(true);
  Tensor y;
  {
    Tensor x = Make(tape);
    y = Mul(tape, x, w);
  }
  EXPECT_THAT(Trace(program), ElementsAre("+0", "+1", "+2", "mul"));
  tape.Backward(y);
  // The seed, both gradients, then the seed goes, then the saved input; dx has no taker.
  EXPECT_THAT(Trace(program), ElementsAre("+0", "+1", "+2", "mul", "+3", "fill", "+4", "mul", "+5",
                                          "mul", "-3", "-1", "-4"));
  EXPECT_EQ(w.grad().storage(), 5u);
}

TEST(Tape, AddsLaterGradientsOfALeafInPlace) {
  Program program;
  Tape tape(program, kOps);
  Tensor w = Make(tape);
  w.set_requires_grad(true);
  Tensor x = Make(tape);
  for (int i = 0; i < 2; ++i) {
    Tensor y = Mul(tape, x, w);
    tape.Backward(y);
  }
  auto trace = Trace(program);
  EXPECT_EQ(std::count(trace.begin(), trace.end(), "add_"), 1);
}

TEST(Tape, AddsMeetingGradientsOutOfPlaceWhenTheFirstIsShared) {
  Program program;
  Tape tape(program, kOps);
  Tensor x = Make(tape);
  x.set_requires_grad(true);
  Tensor h = Mul(tape, x, x);
  // A residual: both branches get the same gradient tensor.
  Tensor sum = Make(tape);
  tape.Run(kAdd, {h, h}, {sum});
  tape.Attach("add", {h, h}, sum, [](auto grads) {
    return std::vector<Tensor>{grads[0], grads[0]};
  });
  size_t before = Trace(program).size();
  tape.Backward(sum);
  auto trace = Trace(program);
  EXPECT_EQ(std::count(trace.begin() + before, trace.end(), "add"), 1);
}

TEST(Tape, RecordsNothingWithoutGradMode) {
  Program program;
  Tape tape(program, kOps);
  Tensor w = Make(tape);
  w.set_requires_grad(true);
  NoGrad guard(tape);
  Tensor y = Mul(tape, w, w);
  EXPECT_FALSE(y.requires_grad());
}

TEST(Tape, GivesEqualStepsEqualIds) {
  Program program;
  Tape tape(program, kOps);
  Tensor keep = Make(tape);
  tape.BeginFirstStep();
  { Tensor a = Make(tape), b = Make(tape); }
  size_t first = program.code.size();
  tape.BeginSteadyStep();
  { Tensor a = Make(tape), b = Make(tape); }
  std::vector<std::string> trace = Trace(program);
  EXPECT_EQ(std::vector<std::string>(trace.begin() + 1, trace.begin() + first),
            std::vector<std::string>(trace.begin() + first, trace.end()));
  EXPECT_EQ(program.storage_count, 3u);
}

TEST(Tape, WritesNothingAfterItsEnd) {
  Program program;
  Tensor outlives;
  {
    Tape tape(program, kOps);
    outlives = Make(tape);
  }
  outlives = {};
  EXPECT_THAT(Trace(program), ElementsAre("+0"));
}

TEST(Tape, RunsABackwardPassInsideANode) {
  Program program;
  Tape tape(program, kOps);
  Tensor w = Make(tape);
  w.set_requires_grad(true);
  Tensor x = Make(tape);
  x.set_requires_grad(true);
  Tensor y;
  {
    NoGrad guard(tape);
    y = Mul(tape, x, w);
  }
  tape.Attach("checkpoint", {x}, y, [&tape, x, w](auto grads) {
    Tensor input = tape.Detach(x);
    input.set_requires_grad(true);
    tape.set_grad_enabled(true);
    Tensor again = Mul(tape, input, w);
    tape.Backward({again}, {grads[0]});
    return std::vector<Tensor>{input.grad()};
  });
  tape.Backward(y);
  EXPECT_TRUE(w.grad());
  EXPECT_TRUE(x.grad());
}

}  // namespace
}  // namespace hbmtune
