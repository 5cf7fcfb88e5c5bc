#include "kernels/step/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "kernels/core/error.h"
#include "kernels/device/host/host_device.h"
#include "kernels/program/print.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

void Accept(const OpArgs&) {}
Cost NoCost(const OpArgs&) { return {}; }
void Increment(const OpArgs& args) { *args.out[0].as<float>() = *args.in[0].as<float>() + 1; }
constexpr OpKind kIncrement{"increment", Accept, NoCost, Increment};

// Programs by hand, one 4-byte tensor a storage.
struct Written {
  Program program;

  ViewId View(StorageId storage, int32_t stride = 0) {
    program.views.push_back({storage, stride, Dtype::kF32, 0, {1}, {1}});
    program.storage_count = std::max(program.storage_count, storage + 1);
    return static_cast<ViewId>(program.views.size() - 1);
  }
  void Allocate(StorageId storage, int32_t stride = 0, int64_t bytes = 4) {
    program.code.push_back(hbmtune::Allocate{storage, stride, bytes, Category::kActivations,
                                             MemorySpace::kDevice, kComputeStream});
    program.storage_count = std::max(program.storage_count, storage + 8);
  }
  void Run(ViewId in, ViewId out) {
    program.code.push_back(hbmtune::Run{&kIncrement, static_cast<uint32_t>(program.args.size()),
                                        1, 1, 0, kComputeStream});
    program.args.push_back(in);
    program.args.push_back(out);
    if (program.attrs.empty()) program.attrs.emplace_back();
  }
  template <class T>
  void Add(T instruction) {
    program.code.push_back(instruction);
  }
  // Everything so far is setup.
  Program& AsSetup() {
    program.first_step = program.steady_step = program.code.size();
    return program;
  }
};

// x0 = fresh zeros; three times { four layers: x(i+1) = x(i) + 1 }.
TEST(Executor, RepeatsNestAndLayersAdvanceTheirStorages) {
  Written w;
  w.Add(Repeat{5});
  w.Allocate(0, 1);
  w.Add(End{});
  w.Add(Repeat{3});
  w.Add(Repeat{4});
  w.Run(w.View(0, 1), w.View(1, 1));
  w.Add(End{});
  w.Run(w.View(4), w.View(0));
  w.Add(End{});
  device::HostDevice device({.memory_bytes = 8 << 20});
  step::Executor executor(w.AsSetup(), device, {});
  executor.RunSetup();
  EXPECT_EQ(*executor.Resolve(w.View(4)).as<float>(), 14);  // 3 · 4 + 2
  EXPECT_EQ(executor.LiveStorages().size(), 5u);
}

TEST(Executor, ARepeatOfNothingIsSkipped) {
  Written w;
  w.Allocate(0);
  w.Add(Repeat{0});
  w.Add(Repeat{2});
  w.Run(w.View(0), w.View(0));
  w.Add(End{});
  w.Add(End{});
  device::HostDevice device({.memory_bytes = 8 << 20});
  step::Executor executor(w.AsSetup(), device, {});
  executor.RunSetup();
  EXPECT_EQ(*executor.Resolve(w.View(0)).as<float>(), 0);
}

TEST(Executor, NamesPhaseAndOpThatRanOutOfMemory) {
  Written w;
  w.Add(Phase{PhaseKind::kForward});
  w.Allocate(0);
  w.Allocate(1, 0, 64 << 20);
  w.Run(w.View(0), w.View(0));
  w.Run(w.View(0), w.View(1));
  device::HostDevice device({.memory_bytes = 8 << 20});
  step::Executor executor(w.AsSetup(), device, {});
  try {
    executor.RunSetup();
    FAIL() << "it fitted";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.phase(), "forward");
    EXPECT_EQ(error.op(), "increment");
    EXPECT_EQ(error.shortage().requested_bytes, 64 << 20);
  }
}

TEST(Executor, RefusesProgramsThatUseWhatIsNotThere) {
  Written w;
  w.Run(w.View(0), w.View(0));
  device::HostDevice device({.memory_bytes = 8 << 20});
  step::Executor executor(w.AsSetup(), device, {});
  EXPECT_THROW(executor.RunSetup(), std::logic_error);
}

TEST(Executor, KnowsThePeakOfEveryPhase) {
  Written w;
  w.Add(Phase{PhaseKind::kForward});
  w.Allocate(0, 0, 4 << 20);
  w.Add(Free{0, 0});
  w.Add(Phase{PhaseKind::kBackward});
  w.Allocate(1, 0, 2 << 20);
  device::HostDevice device({.memory_bytes = 32 << 20});
  step::Executor executor(w.AsSetup(), device, {});
  executor.RunSetup();
  const step::MemoryPeaks& peaks = executor.Peaks();
  EXPECT_EQ(peaks.allocated_bytes, 4 << 20);
  EXPECT_EQ(peaks.phase, PhaseKind::kForward);
  EXPECT_EQ(peaks.allocated_by_phase[static_cast<size_t>(PhaseKind::kBackward)], 2 << 20);
  ASSERT_EQ(peaks.breakdown.size(), 1u);
  EXPECT_EQ(peaks.breakdown[0].category, Category::kActivations);
}

TEST(Printer, WritesALineAnInstruction) {
  Written w;
  w.Add(Repeat{2});
  w.Allocate(3, 1);
  w.Run(w.View(3, 1), w.View(4));
  w.Add(Free{3, 1});
  w.Add(End{});
  std::ostringstream out;
  Print(w.AsSetup(), out);
  EXPECT_THAT(out.str(), HasSubstr("0  repeat 2\n1    allocate s3+1i 4 activations\n"
                                   "2    run increment s3+1i[1] -> s4[1]\n3    free s3+1i\n"
                                   "4  end\n"));
}

}  // namespace
}  // namespace hbmtune::testing
