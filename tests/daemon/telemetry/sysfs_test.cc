#include "daemon/telemetry/sysfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_node.h"

namespace hbmtune {
namespace {

using testing::CardKind;
using testing::FakeNode;

TEST(Sysfs, FindsNothingOnANodeWithoutGpus) {
  EXPECT_TRUE(Sysfs("/nonexistent").Discover().empty());
  EXPECT_TRUE(Sysfs(FakeNode().root()).Discover().empty());
}

TEST(Sysfs, ReadsAnMi210) {
  FakeNode node;
  node.AddGpu(CardKind::kMi210, 0);
  Sysfs sysfs(node.root());
  auto gpus = sysfs.Discover();
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].name(), "0000:03:00.0");
  EXPECT_EQ(gpus[0].product, "Instinct MI210");
  EXPECT_EQ(gpus[0].render_minor, 128);
  EXPECT_EQ(gpus[0].kfd_gpu_id, FakeNode::KfdGpuId(0));
  EXPECT_EQ(gpus[0].uuid, "12ff740f-0000-1000-8034-567890ab0000");
  GpuSample sample = sysfs.Read(gpus[0]);
  EXPECT_EQ(sample.vram_total_bytes, 68'702'699'520);
  EXPECT_EQ(sample.vram_used_bytes, int64_t{1} << 30);
  EXPECT_EQ(sysfs.ReadVramUsed(gpus[0]), int64_t{1} << 30);
  EXPECT_DOUBLE_EQ(*sample.busy_ratio, 0.73);
  EXPECT_DOUBLE_EQ(*sample.power_watts, 187);
  EXPECT_DOUBLE_EQ(*sample.edge_celsius, 45);
  EXPECT_DOUBLE_EQ(*sample.junction_celsius, 51);
  EXPECT_DOUBLE_EQ(*sample.link_gigatransfers_per_second, 16);
  EXPECT_EQ(sample.link_lanes, 16);
  EXPECT_FALSE(sample.compute_partition);
  ASSERT_EQ(sample.ras.size(), 2u);
  EXPECT_EQ(sample.ras[0].block, "sdma");
  EXPECT_EQ(sample.ras[0].uncorrectable, 1);
  EXPECT_EQ(sample.ras[1].correctable, 4);
}

TEST(Sysfs, ReadsEightMi300x) {
  FakeNode node;
  for (int i = 0; i < 8; ++i) node.AddGpu(CardKind::kMi300x, i);
  Sysfs sysfs(node.root());
  auto gpus = sysfs.Discover();
  ASSERT_EQ(gpus.size(), 8u);
  GpuSample sample = sysfs.Read(gpus[7]);
  EXPECT_DOUBLE_EQ(*sample.power_watts, 187);  // power1_input: there is no power1_average
  EXPECT_FALSE(sample.edge_celsius);           // and no temp1
  EXPECT_EQ(sample.compute_partition, "SPX");
  EXPECT_EQ(sample.memory_partition, "NPS1");
}

TEST(Sysfs, TellsPartitionsApart) {
  FakeNode node;
  constexpr int64_t kEach = 25'769'803'776;
  for (int i = 0; i < 4; ++i) node.AddGpu(CardKind::kMi300x, i);
  for (int i = 0; i < 4; ++i) node.AddPartitions(i, 8, kEach);
  Sysfs sysfs(node.root());
  auto gpus = sysfs.Discover();
  ASSERT_EQ(gpus.size(), 32u);
  EXPECT_EQ(gpus[3].name(), "0000:03:00.0/3");
  EXPECT_EQ(gpus[3].kfd_gpu_id, FakeNode::KfdGpuId(0, 3));
  GpuSample sample = sysfs.Read(gpus[3]);
  EXPECT_EQ(sample.vram_total_bytes, kEach);
  EXPECT_FALSE(sample.vram_used_bytes) << "the device's file speaks of the whole GPU";
  EXPECT_FALSE(sample.power_watts);
}

TEST(Sysfs, GivesNothingForACardThatVanished) {
  FakeNode node;
  node.AddGpu(CardKind::kMi210, 0);
  node.AddGpu(CardKind::kMi210, 1);
  Sysfs sysfs(node.root());
  auto gpus = sysfs.Discover();
  node.RemoveGpu(0);
  GpuSample sample = sysfs.Read(gpus[0]);
  EXPECT_FALSE(sample.vram_total_bytes);
  EXPECT_FALSE(sample.power_watts);
  EXPECT_TRUE(sysfs.Read(gpus[1]).vram_total_bytes);
  EXPECT_EQ(sysfs.Discover().size(), 1u);
}

TEST(Sysfs, TakesGarbageForAbsent) {
  FakeNode node;
  node.AddGpu(CardKind::kMi300x, 0);
  Sysfs sysfs(node.root());
  auto gpus = sysfs.Discover();
  node.AddProcess(42, 0, 1);
  node.Garble();
  GpuSample sample = sysfs.Read(gpus[0]);
  EXPECT_FALSE(sample.vram_total_bytes);
  EXPECT_FALSE(sample.busy_ratio);
  EXPECT_FALSE(sample.power_watts);
  EXPECT_FALSE(sample.link_lanes);
  EXPECT_FALSE(sample.compute_partition);
  EXPECT_TRUE(sample.ras.empty());
  EXPECT_TRUE(sysfs.Processes(gpus[0]).empty());
  EXPECT_TRUE(sysfs.Discover().empty());
}

TEST(Sysfs, RefusesNumbersThatCannotBe) {
  FakeNode node;
  node.AddGpu(CardKind::kMi210, 0);
  node.Write(FakeNode::DevicePath(0) + "/gpu_busy_percent", "101");
  node.Write(FakeNode::DevicePath(0) + "/mem_info_vram_total", "140737488355328");
  Sysfs sysfs(node.root());
  GpuSample sample = sysfs.Read(sysfs.Discover().at(0));
  EXPECT_FALSE(sample.busy_ratio);
  EXPECT_FALSE(sample.vram_total_bytes);
}

TEST(Sysfs, ListsProcessesOfOneGpu) {
  FakeNode node;
  node.AddGpu(CardKind::kMi210, 0);
  node.AddGpu(CardKind::kMi210, 1);
  node.AddProcess(200, 0, 1 << 20);
  node.AddProcess(100, 0, 0);
  node.AddProcess(300, 1, 5);
  Sysfs sysfs(node.root());
  auto processes = sysfs.Processes(sysfs.Discover().at(0));
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, 100);
  EXPECT_EQ(processes[1].vram_bytes, 1 << 20);
}

}  // namespace
}  // namespace hbmtune
