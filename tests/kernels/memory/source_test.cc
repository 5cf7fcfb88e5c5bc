#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <stdexcept>

#include "kernels/core/units.h"
#include "kernels/memory/caching_allocator.h"
#include "kernels/memory/host_source.h"
#include "kernels/memory/modelled_source.h"

namespace hbmtune::memory {
namespace {

TEST(AddressSpace, TakesTheLowestHoleThatFitsAndJoinsHoles) {
  AddressSpace space(1 << 21, 100 * kMiB);
  Address a = space.Reserve(2 * kMiB);
  Address b = space.Reserve(4 * kMiB);
  Address c = space.Reserve(2 * kMiB);
  EXPECT_EQ(b, a + 2 * kMiB);
  space.Release(a, 2 * kMiB);
  EXPECT_EQ(space.Reserve(4 * kMiB), c + 2 * kMiB);
  space.Release(b, 4 * kMiB);
  EXPECT_EQ(space.Reserve(6 * kMiB), a);
  EXPECT_EQ(space.Reserve(1000 * kMiB), 0);
}

TEST(HostSource, GivesMemoryThatCanBeWrittenWithinItsBudget) {
  HostSource source(64 * kMiB);
  Address address = source.Allocate(40 * kMiB);
  ASSERT_NE(address, 0u);
  std::memset(reinterpret_cast<void*>(address), 7, 40 * kMiB);
  EXPECT_EQ(source.free_bytes(), 24 * kMiB);
  EXPECT_EQ(source.Allocate(26 * kMiB), 0u);
  source.Free(address, 40 * kMiB);
  EXPECT_EQ(source.free_bytes(), 64 * kMiB);
}

TEST(HostSource, NamesTheLimitThatRefusesItsArena) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  int64_t own_pages = 0;
  std::ifstream("/proc/self/statm") >> own_pages;
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(own_pages * getpagesize() + 8 * kGiB);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &low), 0);
  try {
    HostSource source(1 * kGiB);
    ADD_FAILURE() << "it was given";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(
                    ::testing::StartsWith("cannot reserve 32.00 GiB of address space for the host "
                                          "device, 32 times its memory: Cannot allocate memory"),
                    ::testing::HasSubstr(FormatBytes(static_cast<int64_t>(low.rlim_cur)) +
                                         " of address space here (RLIMIT_AS): raise it")));
  }
  EXPECT_NO_THROW(HostSource(64 * kMiB));
  setrlimit(RLIMIT_AS, &before);
}

TEST(HostSource, MapsAndUnmapsPagesOfAReservedRange) {
  HostSource source(64 * kMiB);
  Address range = source.ReserveAddresses(72 * kMiB);
  ASSERT_TRUE(source.Map(range + 20 * kMiB, 20 * kMiB));
  std::memset(reinterpret_cast<void*>(range + 20 * kMiB), 7, 20 * kMiB);
  EXPECT_FALSE(source.Map(range + 40 * kMiB, 60 * kMiB));
  source.Unmap(range + 20 * kMiB, 20 * kMiB);
  ASSERT_TRUE(source.Map(range + 20 * kMiB, 20 * kMiB));
  EXPECT_EQ(*reinterpret_cast<char*>(range + 20 * kMiB), 0) << "old contents are gone";
  source.Unmap(range + 20 * kMiB, 20 * kMiB);
  source.ReleaseAddresses(range, 72 * kMiB);
}

// The same requests give the same layout on both, so that a peak on one is the peak on the other.
TEST(HostSource, PlacesSegmentsAsTheModelledDeviceDoes) {
  for (const char* settings : {"", "expandable_segments:True"}) {
    HostSource host_source(kGiB);
    ModelledSource model_source(kGiB);
    EventsAtOnce events;
    AllocatorConfig config = AllocatorConfig::Parse(settings);
    CachingAllocator host(config, host_source, events);
    CachingAllocator model(config, model_source, events);
    int64_t offset = 0;
    std::vector<std::pair<Block*, Block*>> live;
    for (int i = 1; i < 400; ++i) {
      int64_t bytes = (i * 7919 % 97) * 100003;
      Block* on_host = host.Allocate(bytes, Category::kWeights);
      Block* on_model = model.Allocate(bytes, Category::kWeights);
      if (on_host == nullptr) continue;
      if (offset == 0) offset = static_cast<int64_t>(on_model->address - on_host->address);
      ASSERT_EQ(static_cast<int64_t>(on_model->address - on_host->address), offset);
      live.emplace_back(on_host, on_model);
      if (i % 3 == 0) {
        size_t victim = i * 31 % live.size();
        host.Free(live[victim].first);
        model.Free(live[victim].second);
        live.erase(live.begin() + static_cast<int64_t>(victim));
      }
      if (host.allocated_bytes() > 700 * kMiB) {
        for (auto [h, m] : live) host.Free(h), model.Free(m);
        live.clear();
      }
    }
    EXPECT_EQ(host.statistics(), model.statistics());
  }
}

}  // namespace
}  // namespace hbmtune::memory
