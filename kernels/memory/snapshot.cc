#include "kernels/memory/snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace hbmtune::memory {
namespace {

using Json = nlohmann::ordered_json;

Json FramesOf(Category category) {
  return Json::array({{{"name", Name(category)}, {"filename", "hbmtune"}, {"line", 0}}});
}

Json BlockJson(const Block& block) {
  const char* state = block.allocated ? "active_allocated"
                      : block.idle()  ? "inactive"
                                      : "active_pending_free";
  return {{"address", block.address},
          {"size", block.bytes},
          {"requested_size", block.idle() ? 0 : block.requested_bytes},
          {"state", state},
          {"frames", block.idle() ? Json::array() : FramesOf(block.category)}};
}

// From `first` to the last block that is mapped like it.
Json SegmentJson(const Segment& segment, const Block* first) {
  int64_t total = 0, allocated = 0, active = 0, requested = 0;
  Json blocks = Json::array();
  for (const Block* block = first; block != nullptr && block->mapped; block = block->next) {
    total += block->bytes;
    if (block->allocated) allocated += block->bytes;
    if (!block->idle()) {
      active += block->bytes;
      requested += block->requested_bytes;
    }
    blocks.push_back(BlockJson(*block));
  }
  return {{"device", 0},
          {"address", first->address},
          {"total_size", total},
          {"allocated_size", allocated},
          {"active_size", active},
          {"requested_size", requested},
          {"stream", segment.stream},
          {"segment_type", segment.pool == PoolKind::kSmall ? "small" : "large"},
          {"segment_pool_id", {0, 0}},
          {"is_expandable", segment.expandable()},
          {"frames", Json::array()},
          {"blocks", blocks}};
}

Json SegmentsJson(const CachingAllocator& allocator) {
  std::vector<Json> segments;
  for (const Segment* s = allocator.segments(); s != nullptr; s = s->next) {
    for (const Block* block = s->first; block != nullptr; block = block->next) {
      bool starts = block->previous == nullptr || !block->previous->mapped;
      if (block->mapped && starts) segments.push_back(SegmentJson(*s, block));
    }
  }
  std::sort(segments.begin(), segments.end(), [](const Json& a, const Json& b) {
    return a["address"].get<Address>() < b["address"].get<Address>();
  });
  return segments;
}

bool IsOfBlock(Action action) {
  return action == Action::kAlloc || action == Action::kFreeRequested ||
         action == Action::kFreeCompleted;
}

Json TraceJson(const EventHistory* history) {
  Json trace = Json::array();
  if (history == nullptr) return trace;
  for (const auto& [event, time_us] : history->Entries()) {
    const char* address = event.action == Action::kOom ? "device_free" : "addr";
    trace.push_back({{"action", kActionNames[static_cast<size_t>(event.action)]},
                     {address, event.address},
                     {"size", event.bytes},
                     {"stream", event.stream},
                     {"time_us", time_us},
                     {"compile_context", "N/A"},
                     {"user_metadata", ""},
                     {"pool_id", {0, 0}},
                     {"frames", IsOfBlock(event.action) ? FramesOf(event.category)
                                                        : Json::array()}});
  }
  return trace;
}

Json SettingsJson(const AllocatorConfig& config) {
  auto limit = [](int64_t bytes) { return bytes == AllocatorConfig::kUnlimited ? -1 : bytes; };
  Json divisions = Json::object();
  for (size_t slot = 0; slot < AllocatorConfig::kDivisionSlots; ++slot) {
    int64_t mebibytes = int64_t{1} << slot;
    divisions[std::to_string(mebibytes)] = config.DivisionsFor(mebibytes << 20);
  }
  return {{"PYTORCH_CUDA_ALLOC_CONF", config.ToString()},
          {"max_split_size", limit(config.max_split_size_bytes)},
          {"garbage_collection_threshold", config.garbage_collection_threshold},
          {"expandable_segments", config.expandable_segments},
          {"pinned_num_register_threads", 1},
          {"release_lock_on_cudamalloc", false},
          {"pinned_use_cuda_host_register", false},
          {"graph_capture_record_stream_reuse", false},
          {"max_round_threshold", limit(config.pinned_max_round_bytes)},
          {"max_cached_size", -1},
          {"roundup_power2_divisions", divisions}};
}

}  // namespace

EventHistory::EventHistory(size_t max_entries, std::function<int64_t()> clock_us)
    : max_entries_(std::max<size_t>(1, max_entries)), clock_us_(std::move(clock_us)) {}

void EventHistory::OnEvent(const AllocatorEvent& event) {
  Entry entry{event, clock_us_ ? clock_us_() : count_};
  ++count_;
  if (ring_.size() < max_entries_) {
    ring_.push_back(entry);
    return;
  }
  ring_[next_] = entry;
  next_ = (next_ + 1) % max_entries_;
}

std::vector<EventHistory::Entry> EventHistory::Entries() const {
  std::vector<Entry> entries(ring_.begin() + static_cast<ptrdiff_t>(next_), ring_.end());
  entries.insert(entries.end(), ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(next_));
  return entries;
}

void EventHistory::Clear() {
  ring_.clear();
  next_ = 0;
  count_ = 0;
}

Json Snapshot(const CachingAllocator& allocator, const EventHistory* history) {
  return {{"segments", SegmentsJson(allocator)},
          {"device_traces", Json::array({TraceJson(history)})},
          {"allocator_settings", SettingsJson(allocator.config())},
          {"external_annotations", Json::array()},
          {"host_segments", Json::array()},
          {"host_traces", Json::array()}};
}

}  // namespace hbmtune::memory
