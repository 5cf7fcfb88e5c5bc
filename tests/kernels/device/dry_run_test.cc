#include "kernels/device/modelled/dry_run.h"

#include <gtest/gtest.h>

#include "kernels/core/error.h"
#include "kernels/core/units.h"
#include "kernels/program/tape.h"

namespace hbmtune::device {
namespace {

void Nothing(const OpArgs&) {}
// A second of bandwidth on the test's profile for each GB that the output has.
Cost WriteCost(const OpArgs& args) {
  Cost cost;
  cost.bytes_written = static_cast<double>(args.out[0].bytes());
  return cost;
}
constexpr OpKind kWrite{"write", Nothing, WriteCost, Nothing};
constexpr TapeOps kOps{&kWrite, &kWrite, &kWrite, &kWrite};

DeviceProfile TestProfile() {
  DeviceProfile profile;
  profile.memory_bytes_per_second.value = 1e9;
  profile.memory_efficiency_ratio.value = 1;
  profile.issue_seconds.value = 0.001;
  profile.copy_seconds.value = 0.01;
  profile.host_to_device_bytes_per_second.value = 1e9;
  profile.device_to_host_bytes_per_second.value = 1e9;
  profile.collective_bytes_per_second.value = 1e9;
  return profile;
}

Tensor Write(Tape& tape, int64_t bytes, Category category = Category::kActivations) {
  Tensor tensor = tape.Empty(Dtype::kU8, {bytes}, category);
  tape.Run(kWrite, {}, {tensor});
  return tensor;
}

TEST(DryRun, FindsThePeakItsPhaseAndItsOwners) {
  Program program;
  Tensor weights;  // outlive the step
  {
    Tape tape(program, kOps);
    tape.Phase(PhaseKind::kSetup);
    weights = Write(tape, 4 * kMiB, Category::kWeights);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    tape.Phase(PhaseKind::kForward);
    Tensor a = Write(tape, 30 * kMiB);
    tape.Phase(PhaseKind::kBackward);
    { Tensor b = Write(tape, 20 * kMiB, Category::kGradients); }
    a = {};
    tape.Phase(PhaseKind::kOptimizer);
    Write(tape, 10 * kMiB);
  }
  DryRunMemory memory = DryRunAllocator(TraceOf(program), {});
  EXPECT_EQ(memory.peak_allocated_bytes, 54 * kMiB);
  EXPECT_EQ(memory.peak_phase, PhaseKind::kBackward);
  EXPECT_EQ(memory.peak_reserved_bytes, (20 + 30 + 20) * kMiB);  // weights split a 20 MiB segment
  EXPECT_EQ(memory.allocated_by_phase[static_cast<size_t>(PhaseKind::kForward)], 34 * kMiB);
  ASSERT_EQ(memory.breakdown.size(), 3u);
  EXPECT_EQ(memory.breakdown[0].category, Category::kWeights);
  EXPECT_EQ(memory.breakdown[0].bytes, 4 * kMiB);
}

TEST(DryRun, RunsOutOfMemoryInTheRightPhase) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    tape.Phase(PhaseKind::kForward);
    Write(tape, 30 * kMiB);
    tape.Phase(PhaseKind::kBackward);
    Write(tape, 50 * kMiB);
  }
  StepTrace trace = TraceOf(program);
  EXPECT_EQ(DryRunAllocator(trace, {}, 60 * kMiB).alloc_retries, 1);  // the cache is given back
  try {
    DryRunAllocator(trace, {}, 40 * kMiB);
    FAIL() << "nothing thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.phase(), "backward");
    EXPECT_EQ(error.shortage().requested_bytes, 50 * kMiB);
  }
}

TEST(DryRun, StreamsOverlapAndWaitForEachOther) {
  auto seconds = [](bool waits) {
    Program program;
    {
      Tape tape(program, kOps);
      tape.BeginFirstStep();
      tape.BeginSteadyStep();
      Tensor a = Write(tape, 1'000'000'000);  // one second of the compute stream
      EventId done = tape.Record();
      OnStream other(tape, kCopyOutStream);
      if (waits) tape.Wait(done);
      Tensor b = Write(tape, 1'000'000'000);
    }
    return DryRunClock(TraceOf(program), TestProfile(), 1).step_seconds;
  };
  EXPECT_NEAR(seconds(false), 1.002, 1e-9);
  EXPECT_NEAR(seconds(true), 2.001, 1e-9);
}

TEST(DryRun, ManySmallOperationsAreBoundByTheHost) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    for (int i = 0; i < 1000; ++i) Write(tape, 1000);
  }
  DryRunTime time = DryRunClock(TraceOf(program), TestProfile(), 1);
  EXPECT_NEAR(time.step_seconds, 1.0, 1e-3);
  EXPECT_NEAR(time.issue_seconds, 1.0, 1e-9);
}

TEST(DryRun, ExtraMicroStepsRepeatTheFirst) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    for (int i = 0; i < 2; ++i) {
      tape.Phase(PhaseKind::kForward);
      Write(tape, 100'000'000);
      tape.Phase(PhaseKind::kBackward);
      Write(tape, 200'000'000);
    }
    tape.Phase(PhaseKind::kOptimizer);
    Write(tape, 50'000'000);
  }
  StepTrace trace = TraceOf(program);
  const double two = DryRunClock(trace, TestProfile(), 1).step_seconds;
  EXPECT_NEAR(DryRunClock(trace, TestProfile(), 1, 3).step_seconds, two + 3 * 0.3, 0.01);
}

TEST(DryRun, CollectivesTakeTheRingsShareOfTheirBytes) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    Tensor a = tape.Empty(Dtype::kU8, {1'000'000'000}, Category::kGradients);
    tape.Collective(CollectiveKind::kAllReduce, a, a);
  }
  StepTrace trace = TraceOf(program);
  EXPECT_NEAR(DryRunClock(trace, TestProfile(), 4).collective_seconds, 2 * 0.75, 1e-9);
  EXPECT_EQ(DryRunClock(trace, TestProfile(), 1).collective_seconds, 0);
}

TEST(DryRun, KernelsYieldToTransfersBesideThem) {
  auto seconds = [](int64_t copied_bytes) {
    Program program;
    {
      Tape tape(program, kOps);
      tape.BeginFirstStep();
      tape.BeginSteadyStep();
      if (copied_bytes > 0) {
        OnStream out(tape, kCopyOutStream);
        Tensor from = tape.Empty(Dtype::kU8, {copied_bytes}, Category::kActivations);
        Tensor to = tape.Empty(Dtype::kU8, {copied_bytes}, Category::kActivations,
                               MemorySpace::kPinned);
        tape.Copy(from, to);
      }
      Write(tape, 2'000'000'000);  // two seconds alone
    }
    DeviceProfile profile = TestProfile();
    profile.device_to_host_bytes_per_second.value = 0.25e9;  // a quarter of the memory's
    return DryRunClock(TraceOf(program), profile, 1).step_seconds;
  };
  EXPECT_NEAR(seconds(0), 2.0, 0.01);
  EXPECT_NEAR(seconds(250'000'000), 2.25, 0.01);   // one second beside a copy costs a quarter
  EXPECT_NEAR(seconds(1'000'000'000), 4.0, 0.01);  // the copy itself is the longer one
}

TEST(DryRun, BlocksOfAnotherStreamComeBackAtOnceOrLate) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    tape.Phase(PhaseKind::kForward);
    for (int i = 0; i < 4; ++i) {
      Tensor a = Write(tape, 30 * kMiB);
      const EventId written = tape.Record();
      OnStream other(tape, kCommStream);
      tape.Wait(written);
      tape.UseOnCurrentStream(a);
    }
    OnStream other(tape, kCommStream);
    const EventId used = tape.Record();
    tape.set_stream(kComputeStream);
    tape.Wait(used);
    Tensor loss = Write(tape, 512);
    tape.ReadScalar(loss, ScalarSlot::kLoss);
  }
  const FoldedTrace trace = Folded(TraceOf(program));
  const DryRunMemory soon = DryRunAllocator(trace, {});
  const DryRunMemory late = DryRunAllocator(trace, {}, 0, OtherStreams::kDoneLate);
  EXPECT_EQ(soon.peak_allocated_bytes, late.peak_allocated_bytes);
  EXPECT_EQ(soon.peak_reserved_bytes, 32 * kMiB);      // one block again and again, and the loss
  EXPECT_EQ(late.peak_reserved_bytes, 4 * 30 * kMiB + 2 * kMiB);  // all four until the read-back
}

// Blocks used on the compute stream come back when the host waits for the other stream, as far as
// that had waited for the compute stream before the event.
TEST(DryRun, AnEventThatTheHostWaitsForVouchesForWhatItsStreamWaitedFor) {
  auto reserved = [](bool host_waits) {
    Program program;
    {
      Tape tape(program, kOps);
      tape.BeginFirstStep();
      tape.BeginSteadyStep();
      tape.Phase(PhaseKind::kForward);
      EventId gathered = 0;
      for (int i = 0; i < 4; ++i) {
        tape.set_stream(kGatherStream);
        if (i == 2 && host_waits) tape.HostWait(gathered);
        Tensor weight = Write(tape, 30 * kMiB);
        tape.set_stream(kComputeStream);
        tape.UseOnCurrentStream(weight);
        weight = {};
        const EventId used = tape.Record();
        tape.set_stream(kGatherStream);
        tape.Wait(used);
        if (i == 0) gathered = tape.Record();
        tape.set_stream(kComputeStream);
      }
    }
    return DryRunAllocator(Folded(TraceOf(program)), {}, 0, OtherStreams::kDoneLate)
        .peak_reserved_bytes;
  };
  EXPECT_EQ(reserved(true), 5 * 30 * kMiB);  // three of the step before, and two of this one
  EXPECT_GE(reserved(false), 6 * 4 * 30 * kMiB);  // none comes back, step after step
}

TEST(DryRun, CountsTheDriversCallsOfASteadyStep) {
  Program program;
  {
    Tape tape(program, kOps);
    tape.BeginFirstStep();
    tape.BeginSteadyStep();
    tape.Phase(PhaseKind::kForward);
    Write(tape, 30 * kMiB);
    Write(tape, 50 * kMiB);
  }
  const FoldedTrace trace = Folded(TraceOf(program));
  EXPECT_EQ(DryRunAllocator(trace, {}).steady_driver_calls, 0);
  // Room for one of the two only, and neither is cut to serve the other: each pushes it out.
  const auto unsplit = memory::AllocatorConfig::Parse("max_split_size_mb:21");
  EXPECT_EQ(DryRunAllocator(trace, unsplit, 60 * kMiB).steady_driver_calls, 4);
}

}  // namespace
}  // namespace hbmtune::device
