// PyTorch's own allocator as oracle: tests/reference/record_allocator.py recorded what it did with
// these traces, and every figure must be equal, as must the address of every allocation.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/memory/replay.h"

namespace hbmtune::memory {
namespace {

namespace fs = std::filesystem;

// FNV-1a over the offsets of all allocations from the first address.
class PlacementHash final : public AllocatorObserver {
 public:
  void OnEvent(const AllocatorEvent& event) override {
    if (event.action != Action::kAlloc) return;
    constexpr Address kBase = Address{1} << 40;
    hash_ = (hash_ ^ (event.address - kBase)) * 1099511628211u;
  }
  std::string hex() const {
    std::array<char, 17> digits;
    std::snprintf(digits.data(), digits.size(), "%016lx", hash_);
    return digits.data();
  }

 private:
  uint64_t hash_ = 14695981039346656037u;
};

void Compare(const nlohmann::json& json, const std::vector<std::string>& names) {
  Trace trace = Trace::Parse(json);
  TraceReplay replay(trace);
  PlacementHash placement;
  replay.allocator().AddObserver(&placement);
  const nlohmann::json& expected = json.at("expected");
  size_t row = 0;
  replay.OnCheck([&] {
    ASSERT_LT(row, expected.size());
    const nlohmann::json& figures = expected[row++];
    EXPECT_EQ(placement.hex(), figures.at(0).get<std::string>()) << "placement, check " << row;
    auto flat = replay.allocator().statistics().Flatten();
    std::map<std::string, int64_t> ours(flat.begin(), flat.end());
    for (size_t i = 0; i < names.size(); ++i) {
      auto found = ours.find(names[i]);
      ASSERT_NE(found, ours.end()) << names[i];
      EXPECT_EQ(found->second, figures.at(i + 1).get<int64_t>()) << names[i] << ", check " << row;
    }
  });
  replay.Run();
  EXPECT_EQ(row, expected.size());
}

TEST(Oracle, EveryFigureEqualsPyTorchs) {
  // Fresh recordings (record_allocator.py --out DIR --seed S) can be put in the place of ours.
  const char* other = std::getenv("HBMTUNE_ALLOCATOR_DATA");
  size_t traces = 0;
  for (const auto& file :
       fs::directory_iterator(other != nullptr ? other : HBMTUNE_TEST_DATA "/allocator")) {
    if (file.path().extension() != ".json") continue;
    std::ifstream in(file.path());
    nlohmann::json json = nlohmann::json::parse(in);
    auto names = json.at("statistics").get<std::vector<std::string>>();
    for (const nlohmann::json& trace : json.at("traces")) {
      SCOPED_TRACE(trace.at("name").get<std::string>());
      Compare(trace, names);
      ++traces;
    }
  }
  EXPECT_GE(traces, other != nullptr ? 1u : 200u) << "the recordings are missing";
}

}  // namespace
}  // namespace hbmtune::memory
