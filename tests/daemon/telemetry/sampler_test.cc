#include "daemon/telemetry/sampler.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/fake_node.h"

namespace hbmtune {
namespace {

using testing::CardKind;
using testing::FakeNode;

// A sampler over a fake node whose clock the test turns.
struct World {
  FakeNode node;
  double seconds = 0;
  std::vector<MinuteRow> rows;

  Sampler Make() {
    return Sampler(Sysfs(node.root()), [this] { return seconds; },
                   [this](const MinuteRow& row) { rows.push_back(row); });
  }
  void SetUsed(int64_t bytes) {
    node.Write(FakeNode::DevicePath(0) + "/mem_info_vram_used", std::to_string(bytes));
  }
};

TEST(Sampler, KeepsTenMinutesOfPoints) {
  World world;
  world.node.AddGpu(CardKind::kMi210, 0);
  Sampler sampler = world.Make();
  for (int i = 0; i <= 700; ++i) {
    world.seconds = i;
    sampler.Tick();
  }
  auto history = sampler.History(FakeNode::Address(0));
  EXPECT_EQ(history.size(), 601u);
  EXPECT_EQ(history.front().seconds, 100);
  EXPECT_TRUE(sampler.History("0000:99:00.0").empty());
}

TEST(Sampler, HandsOutOneRowAMinute) {
  World world;
  world.node.AddGpu(CardKind::kMi210, 0);
  Sampler sampler = world.Make();
  for (int i = 0; i < 61; ++i) {
    world.seconds = i;
    world.SetUsed(i < 30 ? 100 : 200);
    sampler.Tick();
  }
  ASSERT_EQ(world.rows.size(), 1u);
  EXPECT_EQ(world.rows[0].device, FakeNode::Address(0));
  EXPECT_EQ(world.rows[0].minute, 0);
  EXPECT_EQ(world.rows[0].least_bytes, 100);
  EXPECT_EQ(world.rows[0].most_bytes, 200);
  EXPECT_DOUBLE_EQ(world.rows[0].mean_bytes, 150);
}

TEST(Sampler, ReadsTheRestOnceASecond) {
  World world;
  world.node.AddGpu(CardKind::kMi210, 0);
  Sampler sampler = world.Make();
  sampler.Tick();
  world.node.Write(FakeNode::DevicePath(0) + "/gpu_busy_percent", "5");
  world.SetUsed(77);
  world.seconds = 0.5;
  sampler.Tick();
  EXPECT_DOUBLE_EQ(*sampler.Devices().at(0).sample.busy_ratio, 0.73);
  EXPECT_EQ(sampler.Devices().at(0).sample.vram_used_bytes, 77);
  world.seconds = 1.5;
  sampler.Tick();
  EXPECT_DOUBLE_EQ(*sampler.Devices().at(0).sample.busy_ratio, 0.05);
}

TEST(Sampler, SaysThatACardIsGone) {
  World world;
  world.node.AddGpu(CardKind::kMi300x, 0);
  Sampler sampler = world.Make();
  sampler.Tick();
  EXPECT_TRUE(sampler.Devices().at(0).present);
  world.node.RemoveGpu(0);
  world.seconds = 2;
  sampler.Tick();
  EXPECT_FALSE(sampler.Devices().at(0).present);
  EXPECT_FALSE(sampler.Devices().at(0).sample.vram_used_bytes);
}

TEST(Sampler, StopsAtOnceAndWithoutGpus) {
  World world;
  Sampler sampler = world.Make();
  sampler.Start();
  sampler.Stop();
  EXPECT_TRUE(sampler.Devices().empty());
}

TEST(Sampler, IsReadWhileItSamples) {
  FakeNode node;
  node.AddGpu(CardKind::kMi300x, 0);
  std::atomic<int> ticks = 0;
  Sampler sampler(Sysfs(node.root()), [&] { return ++ticks * 0.1; }, [](const MinuteRow&) {});
  sampler.Start();
  while (ticks < 3 || sampler.History(FakeNode::Address(0)).empty()) std::this_thread::yield();
  EXPECT_EQ(sampler.Devices().size(), 1u);
  sampler.Stop();
}

}  // namespace
}  // namespace hbmtune
