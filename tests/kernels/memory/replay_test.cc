#include "kernels/memory/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

std::pair<int, std::string> Replay(const std::string& text) {
  std::istringstream in(text);
  std::ostringstream out;
  int code = ReplayTrace(in, out);
  return {code, out.str()};
}

TEST(ReplayTrace, PrintsStatisticsAndThePeaksOwners) {
  auto [code, text] = Replay(R"({"events": [
      ["alloc", 1, 31457280, 0, "weights"], ["alloc", 2, 1000], ["free", 2],
      ["alloc", 2, 2000], ["free", 1]]})");
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, testing::HasSubstr("allocated_bytes.all.peak 31459328\n"));
  EXPECT_THAT(text, testing::HasSubstr("reserved_bytes.all.current 33554432\n"));
  EXPECT_THAT(text, testing::HasSubstr("at allocation 3:\n  weights 31457280\n"));
}

TEST(ReplayTrace, FollowsStreams) {
  const std::string events = R"("events": [["alloc", 1, 31457280], ["record_stream", 1, 2],
      ["free", 1], ["alloc", 2, 31457280], ["progress", 2], ["alloc", 3, 31457280]]})";
  auto [late, late_text] = Replay(R"({"events_complete": "late", )" + events);
  auto [at_once, at_once_text] = Replay("{" + events);
  EXPECT_THAT(late_text, testing::HasSubstr("reserved_bytes.all.peak 62914560\n"));
  EXPECT_THAT(at_once_text, testing::HasSubstr("num_device_alloc 2\n"));
}

TEST(ReplayTrace, CountsAllocationsThatFail) {
  auto [code, text] = Replay(R"({"capacity_bytes": 10485760, "events": [
      ["alloc", 1, 8000000], ["alloc", 2, 100], ["free", 1], ["record_stream", 2, 1]]})");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(text, testing::HasSubstr("1 allocations ran out of memory"));
}

TEST(ReplayTrace, NamesTheEventThatIsWrong) {
  auto error = [](const std::string& text) {
    auto [code, out] = Replay(text);
    EXPECT_EQ(code, 1) << text;
    return out;
  };
  EXPECT_THAT(error("{"), testing::HasSubstr("not a valid trace"));
  EXPECT_THAT(error("{}"), testing::HasSubstr("events"));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, 5], ["fre", 1]]})"),
              testing::AllOf(testing::HasSubstr("event 1"), testing::HasSubstr("\"fre\"")));
  EXPECT_THAT(error(R"({"events": [["free", 9]]})"), testing::HasSubstr("9 is not live"));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, 5], ["alloc", 1, 5]]})"),
              testing::HasSubstr("live already"));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, -5]]})"), testing::HasSubstr("negative"));
  EXPECT_THAT(error(R"({"events": [["check"], ["alloc", 1, 9223372036854775000]]})"),
              testing::AllOf(testing::HasSubstr("event 1"), testing::HasSubstr("2^50")));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, 18446744073709551615]]})"),
              testing::HasSubstr("2^50"));
  EXPECT_THAT(error(R"({"capacity_bytes": 1e30, "events": []})"),
              testing::HasSubstr("capacity_bytes: a size of 1e+30"));
  EXPECT_THAT(error(R"({"events": null})"), testing::HasSubstr("must be a list"));
  EXPECT_THAT(error(R"({"events": {}})"), testing::HasSubstr("must be a list"));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, 5, 64]]})"), testing::HasSubstr("[0, 64)"));
  EXPECT_THAT(error(R"({"events": [["alloc", 1, 5, 0, "friends"]]})"),
              testing::HasSubstr("\"friends\""));
  EXPECT_THAT(error(R"({"settings": "nope:1", "events": []})"), testing::HasSubstr("nope"));
  EXPECT_THAT(error(R"({"rules": "mine", "events": []})"),
              testing::HasSubstr("torch-2.9, torch-2.10 or current"));
  EXPECT_THAT(error(R"({"events_complete": "never", "events": []})"),
              testing::HasSubstr("at_once or late"));
}

TEST(TraceReplay, GivesTheSameEveryTime) {
  Trace trace = Trace::Parse(nlohmann::json::parse(
      R"({"events": [["alloc", 1, 5000000], ["alloc", 2, 900], ["free", 1], ["alloc", 3, 70]]})"));
  TraceReplay replay(trace);
  replay.Run();
  AllocatorStatistics first = replay.allocator().statistics();
  replay.Run();
  EXPECT_EQ(replay.allocator().statistics(), first);
}

}  // namespace
}  // namespace hbmtune::memory
