#include "kernels/device/host/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernels/core/error.h"

namespace hbmtune::device {
namespace {

using ::testing::HasSubstr;

void Accept(const OpArgs&) {}
Cost NoCost(const OpArgs&) { return {}; }

// out += 1, slowly enough for a missing wait to be seen.
void Increment(const OpArgs& args) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ++*args.out[0].as<float>();
}
constexpr OpKind kIncrement{"increment", Accept, NoCost, Increment};

void Fail(const OpArgs&) { throw DeviceError("it broke"); }
constexpr OpKind kFail{"fail", Accept, NoCost, Fail};

TensorArg Floats(float* data, int64_t count) { return {data, Dtype::kF32, {count}, {1}}; }

OpArgs Out(const TensorArg& tensor) { return {{}, std::span(&tensor, 1), {}}; }

TEST(HostDevice, NeedsABudget) {
  EXPECT_THROW(HostDevice({.memory_bytes = 0}), std::invalid_argument);
}

// Pinned memory of the host is not locked: a limit on that (RLIMIT_MEMLOCK) refuses nothing.
TEST(HostDevice, CallsALackOfPinnedMemoryThatAndNotALostDevice) {
  HostDevice device({.memory_bytes = 1 << 20});
  constexpr int64_t kTooMuch = int64_t{1} << 48;  // over the addresses of a process
  try {
    device.AllocatePinned(kTooMuch);
    ADD_FAILURE() << "it was given";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "out of memory: asked for 256.00 TiB for offloading, of the host's own memory");
    EXPECT_EQ(error.shortage().requested_bytes, kTooMuch);
  }
  EXPECT_EQ(device.pinned_bytes(), 0);
}

TEST(HostDevice, AStreamRunsInOrderAndOthersWaitForEvents) {
  HostDevice device({.memory_bytes = 1 << 20});
  float value = 0, copy = -1;
  const TensorArg tensor = Floats(&value, 1), target = Floats(&copy, 1);
  for (int i = 0; i < 4; ++i) device.Submit(kCommStream, kIncrement, Out(tensor));
  device.Record(kCommStream, 0);
  device.Wait(kCopyOutStream, 0);
  device.Copy(kCopyOutStream, CopyDirection::kToPinned, tensor, target);
  device.Record(kCopyOutStream, 1);
  device.Wait(kComputeStream, 1);
  EXPECT_EQ(copy, 4);
}

TEST(HostDevice, AnEventMarksWhereItWasRecordedLast) {
  HostDevice device({.memory_bytes = 1 << 20});
  float value = 0;
  const TensorArg tensor = Floats(&value, 1);
  for (int round = 1; round <= 3; ++round) {
    device.Submit(kCommStream, kIncrement, Out(tensor));
    device.Record(kCommStream, 0);
    device.Wait(kComputeStream, 0);
    EXPECT_EQ(value, round);
  }
}

TEST(HostDevice, ACopyLastsAtLeastItsBytesOverTheRate) {
  HostDevice device({.memory_bytes = 1 << 20, .copy_bytes_per_second = 1e6});
  std::vector<float> from(5000, 1.5f), to(5000);
  const double begin = device.Seconds();
  device.Copy(kCopyInStream, CopyDirection::kToDevice, Floats(from.data(), 5000),
              Floats(to.data(), 5000));
  device.Synchronize();
  EXPECT_GE(device.Seconds() - begin, 0.02);
  EXPECT_EQ(to, from);
}

TEST(HostDevice, RefusesACopyThatDoesNotFit) {
  HostDevice device({.memory_bytes = 1 << 20});
  float a[4] = {}, b[3] = {};
  try {
    device.Copy(kCopyInStream, CopyDirection::kToDevice, Floats(a, 4), Floats(b, 3));
    FAIL() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("fp32[4] and fp32[3]"));
  }
}

TEST(HostDevice, AFailureOnAStreamComesBackAtTheNextWait) {
  HostDevice device({.memory_bytes = 1 << 20});
  float value = 0;
  const TensorArg tensor = Floats(&value, 1);
  device.Submit(kCommStream, kFail, Out(tensor));
  device.Submit(kCommStream, kIncrement, Out(tensor));
  EXPECT_THROW(device.Synchronize(), DeviceError);
  EXPECT_EQ(value, 0);  // what came after it was dropped
}

TEST(HostDevice, PoisonIsNotANumber) {
  HostDevice device({.memory_bytes = 4 << 20});
  const memory::Address address = device.memory().Allocate(2 << 20);
  device.Poison(address, 64);
  const float* values = static_cast<float*>(device.Pointer(address));
  EXPECT_TRUE(values[0] != values[0]);
  EXPECT_TRUE(values[15] != values[15]);
  device.memory().Free(address, 2 << 20);
}

}  // namespace
}  // namespace hbmtune::device
