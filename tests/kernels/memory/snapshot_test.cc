#include "kernels/memory/snapshot.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/core/units.h"
#include "kernels/memory/modelled_source.h"
#include "kernels/memory/pickle.h"

namespace hbmtune::memory {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(Snapshot, HasTheLayoutOfPyTorchs) {
  ModelledSource source(kGiB);
  EventsOnWait events;
  CachingAllocator allocator({}, source, events);
  EventHistory history;
  allocator.AddObserver(&history);
  Block* kept = allocator.Allocate(1200, Category::kWeights);
  Block* waiting = allocator.Allocate(5 * kMiB, Category::kActivations, 1);
  allocator.RecordStream(waiting, 2);
  allocator.Free(waiting);

  Json snapshot = Snapshot(allocator, &history);
  ASSERT_EQ(snapshot["segments"].size(), 2u);
  const Json& small = snapshot["segments"][0];
  // As torch.cuda.memory._snapshot() of 2.15 prints them.
  EXPECT_EQ(Keys(small), (std::vector<std::string>{
                             "device", "address", "total_size", "allocated_size", "active_size",
                             "requested_size", "stream", "segment_type", "segment_pool_id",
                             "is_expandable", "frames", "blocks"}));
  EXPECT_EQ(small["address"], kept->address);
  EXPECT_EQ(small["total_size"], 2 * kMiB);
  EXPECT_EQ(small["allocated_size"], 1536);
  EXPECT_EQ(small["requested_size"], 1200);
  EXPECT_EQ(small["segment_type"], "small");
  EXPECT_EQ(small["blocks"][0]["state"], "active_allocated");
  EXPECT_EQ(small["blocks"][0]["frames"][0]["name"], "weights");
  EXPECT_EQ(small["blocks"][1]["state"], "inactive");
  const Json& large = snapshot["segments"][1];
  EXPECT_EQ(large["stream"], 1);
  EXPECT_EQ(large["active_size"], 5 * kMiB);
  EXPECT_EQ(large["allocated_size"], 0);
  EXPECT_EQ(large["blocks"][0]["state"], "active_pending_free");

  std::vector<std::string> actions;
  for (const Json& event : snapshot["device_traces"][0]) actions.push_back(event["action"]);
  EXPECT_EQ(actions, (std::vector<std::string>{"segment_alloc", "alloc", "segment_alloc", "alloc",
                                               "free_requested"}));
  EXPECT_EQ(snapshot["device_traces"][0][1]["size"], 1200) << "what was requested";
}

TEST(Snapshot, SumsToTheStatisticsAndShowsMappedRangesOnly) {
  ModelledSource source(300 * kMiB);
  EventsAtOnce events;
  CachingAllocator allocator(AllocatorConfig::Parse("expandable_segments:True"), source, events);
  Block* a = allocator.Allocate(40 * kMiB, Category::kWeights);
  Block* b = allocator.Allocate(60 * kMiB, Category::kWeights);
  allocator.Allocate(20 * kMiB, Category::kWeights);
  allocator.Allocate(100, Category::kWeights);
  allocator.Free(a);
  allocator.EmptyCache();
  allocator.Free(b);
  Json snapshot = Snapshot(allocator, nullptr);
  int64_t total = 0, allocated = 0;
  for (const Json& segment : snapshot["segments"]) {
    int64_t blocks = 0;
    for (const Json& block : segment["blocks"]) blocks += block["size"].get<int64_t>();
    EXPECT_EQ(blocks, segment["total_size"].get<int64_t>());
    total += blocks;
    allocated += segment["allocated_size"].get<int64_t>();
  }
  EXPECT_EQ(total, allocator.reserved_bytes());
  EXPECT_EQ(allocated, allocator.allocated_bytes());
  EXPECT_EQ(snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True");
}

TEST(EventHistory, KeepsTheNewestEvents) {
  ModelledSource source(kGiB);
  EventsAtOnce events;
  CachingAllocator allocator({}, source, events);
  EventHistory history(3);
  allocator.AddObserver(&history);
  for (int i = 1; i <= 4; ++i) allocator.Allocate(i, Category::kWeights);
  auto entries = history.Entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].event.bytes, 2);
  EXPECT_EQ(entries[2].event.bytes, 4);
  EXPECT_EQ(entries[2].time_us, 4);
}

TEST(Pickle, WritesProtocolTwo) {
  // pickletools.dis: PROTO 2, EMPTY_DICT, MARK, BINUNICODE 'a', EMPTY_LIST, MARK, BININT 1,
  // LONG1 1<<40, BINFLOAT 0.5, NEWTRUE, NONE, APPENDS, SETITEMS, STOP
  using namespace std::string_literals;
  Json value = {{"a", {1, int64_t{1} << 40, 0.5, true, nullptr}}};
  EXPECT_EQ(ToPickle(value), "\x80\x02}(X\x01\0\0\0a](J\x01\0\0\0\x8a\x08\0\0\0\0\0\x01\0\0"
                             "G\x3f\xe0\0\0\0\0\0\0\x88Neu."s);
  EXPECT_EQ(ToPickle(Json(-2)), "\x80\x02J\xfe\xff\xff\xff."s);
  EXPECT_EQ(ToPickle(Json::object()), "\x80\x02}(u."s);
}

TEST(Pickle, CutsLongListsIntoRuns) {
  Json list = Json::array();
  for (int i = 0; i < 2500; ++i) list.push_back(false);
  std::string pickle = ToPickle(list);
  EXPECT_EQ(std::count(pickle.begin(), pickle.end(), 'e'), 3);
}

}  // namespace
}  // namespace hbmtune::memory
