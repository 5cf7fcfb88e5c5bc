#include "kernels/memory/pinned_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/core/error.h"
#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

TEST(PinnedPool, HandsOutAlignedSlicesThatDoNotOverlap) {
  HostPinnedSource source;
  PinnedPool pool(kMiB, &source);
  PinnedPool::Slice a = pool.Take(100);
  PinnedPool::Slice b = pool.Take(1);
  EXPECT_EQ(a.bytes, 128);
  EXPECT_EQ(b.data, a.data + 128);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data) % 64, 0u);
  std::memset(a.data, 1, a.bytes);
  std::memset(b.data, 2, b.bytes);
  EXPECT_EQ(a.data[127], std::byte{1});
  EXPECT_EQ(pool.used_bytes(), 192);
}

TEST(PinnedPool, JoinsReturnedSlicesInAnyOrder) {
  PinnedPool pool(3 * 64, nullptr);
  PinnedPool::Slice a = pool.Take(64), b = pool.Take(64), c = pool.Take(64);
  pool.Return(a);
  pool.Return(c);
  pool.Return(b);
  EXPECT_EQ(pool.Take(192).offset, 0);
  EXPECT_EQ(pool.peak_used_bytes(), 192);
}

TEST(PinnedPool, SaysWhatIsFreeWhenItIsTooSmall) {
  PinnedPool pool(kMiB, nullptr);
  PinnedPool::Slice a = pool.Take(512 * kKiB);
  PinnedPool::Slice b = pool.Take(256 * kKiB);
  pool.Return(a);
  (void)b;
  try {
    pool.Take(700 * kKiB);
    FAIL() << "no slice is as large as that";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.shortage().free_bytes, 512 * kKiB);
    EXPECT_THAT(error.what(), testing::HasSubstr("pinned pool"));
    EXPECT_THAT(error.what(), testing::HasSubstr("700"));
  }
}

TEST(PinnedPool, RefusesAllOfNothing) {
  PinnedPool pool(0, nullptr);
  EXPECT_THROW(pool.Take(1), OutOfMemory);
  EXPECT_THROW(PinnedPool(-1, nullptr), std::invalid_argument);
}

TEST(PinnedPool, CountsWhatPyTorchWouldLock) {
  std::vector<int64_t> sizes = {9 * kGiB / 4, 3 * kMiB, kMiB};
  EXPECT_EQ(PinnedPool::PyTorchBytes(sizes, {}), 4 * kGiB + 4 * kMiB + kMiB);
}

}  // namespace
}  // namespace hbmtune::memory
