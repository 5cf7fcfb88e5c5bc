#include "kernels/memory/replay.h"

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "kernels/core/error.h"
#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

using Kind = TraceEvent::Kind;

// No device is near a PiB, and sums of sizes like this stay far from 2^63.
constexpr int64_t kMostBytes = int64_t{1} << 50;

// A JSON number may be 1e30 or 0.5: only a whole one is a size.
int64_t ParseSize(const nlohmann::json& json) {
  const bool whole = json.is_number_integer() &&
                     !(json.is_number_unsigned() && json.get<uint64_t>() > kMostBytes);
  if (!whole || json.get<int64_t>() < 0 || json.get<int64_t>() > kMostBytes) {
    throw std::invalid_argument("a size of " + json.dump() +
                                " bytes: it must be whole, not negative and at most 2^50");
  }
  return json.get<int64_t>();
}

constexpr std::array<std::string_view, 7> kKindNames = {
    "alloc", "free", "record_stream", "progress", "empty_cache", "reset_peak", "check"};

Kind ParseKind(const std::string& name) {
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) return static_cast<Kind>(i);
  }
  throw std::invalid_argument("\"" + name + "\" is no kind of event");
}

StreamId ParseStream(const nlohmann::json& json) {
  auto stream = json.get<int64_t>();
  if (stream < 0 || stream >= kMaxStreams) {
    throw std::invalid_argument("stream " + std::to_string(stream) + " is not in [0, 64)");
  }
  return static_cast<StreamId>(stream);
}

// Numbers live ids densely, so that a replay looks nothing up.
class EventParser {
 public:
  TraceEvent Parse(const nlohmann::json& json) {
    TraceEvent event{.kind = ParseKind(json.at(0).get<std::string>())};
    switch (event.kind) {
      case Kind::kAlloc:
        ParseAlloc(json, event);
        break;
      case Kind::kFree:
        event.slot = SlotOf(json.at(1));
        spare_.push_back(event.slot);
        slots_.erase(json.at(1).get<int64_t>());
        break;
      case Kind::kRecordStream:
        event.slot = SlotOf(json.at(1));
        event.stream = ParseStream(json.at(2));
        break;
      case Kind::kProgress:
        event.stream = ParseStream(json.at(1));
        break;
      default:
        break;
    }
    return event;
  }
  int32_t slots() const { return count_; }

 private:
  void ParseAlloc(const nlohmann::json& json, TraceEvent& event) {
    auto id = json.at(1).get<int64_t>();
    event.bytes = ParseSize(json.at(2));
    if (json.size() > 3) event.stream = ParseStream(json.at(3));
    if (json.size() > 4) {
      auto name = json.at(4).get<std::string>();
      auto category = ParseEnum<Category>(name);
      if (!category) throw std::invalid_argument("\"" + name + "\" is no category");
      event.category = *category;
    }
    if (spare_.empty()) spare_.push_back(count_++);
    event.slot = spare_.back();
    spare_.pop_back();
    if (!slots_.emplace(id, event.slot).second) {
      throw std::invalid_argument("id " + std::to_string(id) + " is live already");
    }
  }
  int32_t SlotOf(const nlohmann::json& id) const {
    auto found = slots_.find(id.get<int64_t>());
    if (found == slots_.end()) throw std::invalid_argument("id " + id.dump() + " is not live");
    return found->second;
  }

  std::unordered_map<int64_t, int32_t> slots_;
  std::vector<int32_t> spare_;
  int32_t count_ = 0;
};

}  // namespace

Trace Trace::Parse(const nlohmann::json& json) {
  Trace trace;
  std::string rules = json.value("rules", std::string("current"));
  auto known_rules = ParseEnum<AllocatorRules>(rules);
  if (!known_rules) {
    throw std::invalid_argument("rules: \"" + rules + "\" must be " + ListOf<AllocatorRules>());
  }
  trace.config = AllocatorConfig::Parse(json.value("settings", std::string()), *known_rules);
  if (json.contains("capacity_bytes")) {
    try {
      trace.capacity_bytes = ParseSize(json.at("capacity_bytes"));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string("capacity_bytes: ") + error.what());
    }
  }
  std::string complete = json.value("events_complete", std::string("at_once"));
  if (complete != "at_once" && complete != "late") {
    throw std::invalid_argument("events_complete: \"" + complete + "\" must be at_once or late");
  }
  trace.events_at_once = complete == "at_once";
  if (!json.at("events").is_array()) {
    throw std::invalid_argument("events: must be a list, and is " + json.at("events").dump());
  }
  EventParser parser;
  for (const nlohmann::json& event : json.at("events")) {
    try {
      trace.events.push_back(parser.Parse(event));
    } catch (const std::exception& error) {
      throw std::invalid_argument("event " + std::to_string(trace.events.size()) + " (" +
                                  event.dump() + "): " + error.what());
    }
  }
  trace.slots = parser.slots();
  return trace;
}

TraceReplay::TraceReplay(const Trace& trace)
    : trace_(trace),
      source_(trace.capacity_bytes),
      allocator_(trace.config, source_,
                 trace.events_at_once ? static_cast<StreamEvents&>(at_once_) : on_wait_) {}

void TraceReplay::Run() {
  allocator_.Reset();
  failed_allocations_ = 0;
  live_.assign(trace_.slots, nullptr);
  for (const TraceEvent& event : trace_.events) Apply(event);
}

void TraceReplay::Apply(const TraceEvent& event) {
  Block*& block = live_[event.slot];
  switch (event.kind) {
    case Kind::kAlloc:
      try {
        block = allocator_.Allocate(event.bytes, event.category, event.stream);
      } catch (const OutOfMemory&) {
        block = nullptr;
        ++failed_allocations_;
      }
      break;
    case Kind::kFree:
      allocator_.Free(block);
      block = nullptr;
      break;
    case Kind::kRecordStream:
      allocator_.RecordStream(block, event.stream);
      break;
    case Kind::kProgress:
      on_wait_.Progress(event.stream);
      break;
    case Kind::kEmptyCache:
      allocator_.EmptyCache();
      break;
    case Kind::kResetPeak:
      allocator_.ResetPeak();
      break;
    case Kind::kCheck:
      if (on_check_) on_check_();
      break;
  }
}

namespace {

// A sentence without nlohmann/json's "[json.exception.parse_error.101] ".
std::string WithoutTag(std::string sentence) {
  const size_t begin = sentence.find("[json.exception.");
  const size_t end = begin == std::string::npos ? begin : sentence.find("] ", begin);
  if (end != std::string::npos) sentence.erase(begin, end + 2 - begin);
  return sentence;
}

}  // namespace

int ReplayTrace(std::istream& in, std::ostream& out) {
  Trace trace;
  try {
    trace = Trace::Parse(nlohmann::json::parse(in));
  } catch (const std::exception& error) {
    out << "not a valid trace: " << WithoutTag(error.what()) << "\n";
    return 1;
  }
  TraceReplay replay(trace);
  replay.Run();
  for (const auto& [name, value] : replay.allocator().statistics().Flatten()) {
    out << name << " " << value << "\n";
  }
  AllocatedPeak peak = replay.allocator().allocated_peak();
  out << "peak of " << FormatBytes(peak.bytes) << " at allocation " << peak.allocation << ":\n";
  for (size_t i = 0; i < kCategoryCount; ++i) {
    if (peak.by_category[i] == 0) continue;
    out << "  " << Name(static_cast<Category>(i)) << " " << peak.by_category[i] << "\n";
  }
  if (replay.failed_allocations() == 0) return 0;
  out << replay.failed_allocations() << " allocations ran out of memory\n";
  return 2;
}

}  // namespace hbmtune::memory
