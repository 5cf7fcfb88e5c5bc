#include "kernels/memory/allocator_config.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "kernels/core/units.h"

namespace hbmtune::memory {
namespace {

constexpr int64_t kMaxMebibytes = std::numeric_limits<int64_t>::max() / kMiB;

// Known to PyTorch, without effect on what is reserved or allocated.
constexpr std::array<std::string_view, 12> kWithoutEffect = {
    "release_lock_on_cudamalloc",    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register", "pinned_use_hip_host_register",
    "pinned_num_register_threads",   "pinned_use_background_threads",
    "pinned_free_catch_all",         "pinned_reserve_segment_size_mb",
    "pinned_max_cached_size_mb",     "graph_capture_record_stream_reuse",
    "expandable_segments_reserve",   "expandable_segments_reserve_by_class"};

[[noreturn]] void Reject(std::string_view key, std::string_view value, const std::string& why) {
  throw std::invalid_argument("allocator setting " + std::string(key) + ": \"" +
                              std::string(value) + "\" " + why);
}

std::string WithoutSpaces(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c != ' ' && c != '\t' && c != '\n') result += c;
  }
  return result;
}

// Cuts at commas outside brackets.
std::vector<std::string_view> SplitSettings(std::string_view text) {
  std::vector<std::string_view> settings;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (i > start) settings.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  return settings;
}

int64_t ParseInteger(std::string_view key, std::string_view value) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0) {
    Reject(key, value, "is not a whole number");
  }
  return number;
}

int64_t ParseMebibytes(std::string_view key, std::string_view value, int64_t least_mb) {
  int64_t number = ParseInteger(key, value);
  if (number < least_mb) Reject(key, value, "must be at least " + std::to_string(least_mb));
  return std::min(number, kMaxMebibytes) * kMiB;
}

bool ParseBool(std::string_view key, std::string_view value) {
  if (value == "True") return true;
  if (value == "False") return false;
  Reject(key, value, "must be True or False");
}

double ParseRatio(std::string_view key, std::string_view value, bool one_allowed) {
  double number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool good = error == std::errc() && end == value.data() + value.size() && number > 0 &&
              (number < 1 || (one_allowed && number == 1));
  if (!good) Reject(key, value, one_allowed ? "must be in (0, 1]" : "must be in (0, 1)");
  return number;
}

int64_t ParseDivisions(std::string_view key, std::string_view value) {
  int64_t number = ParseInteger(key, value);
  if (number != 0 && !std::has_single_bit(static_cast<uint64_t>(number))) {
    Reject(key, value, "must be a power of two, or 0 for none");
  }
  return number;
}

size_t SlotOf(int64_t bytes) {
  int log2_mib = std::bit_width(static_cast<uint64_t>(bytes)) - 1 - 20;
  return std::clamp(log2_mib, 0, static_cast<int>(AllocatorConfig::kDivisionSlots) - 1);
}

// "[256:1,512:2,>:4]": the first key fills the slots under it too, ">" those over the last key
// (and, in PyTorch 2.9, the last key's own).
std::vector<int64_t> ParseDivisionList(std::string_view key, std::string_view list,
                                       AllocatorRules rules) {
  if (list.back() != ']') Reject(key, list, "lacks its closing bracket");
  std::vector<int64_t> slots(AllocatorConfig::kDivisionSlots, 0);
  bool first = true;
  size_t last = 0;
  for (std::string_view entry : SplitSettings(list.substr(1, list.size() - 2))) {
    size_t colon = entry.find(':');
    if (colon == std::string_view::npos) Reject(key, entry, "must be MiB:divisions");
    std::string_view size = entry.substr(0, colon);
    int64_t divisions = ParseDivisions(key, entry.substr(colon + 1));
    if (size == ">") {
      bool own_slot = first || rules == AllocatorRules::kTorch2_9;
      std::fill(slots.begin() + last + (own_slot ? 0 : 1), slots.end(), divisions);
      continue;
    }
    int64_t mebibytes = ParseInteger(key, size);
    if (!std::has_single_bit(static_cast<uint64_t>(mebibytes))) {
      Reject(key, size, "must be a power of two");
    }
    last = SlotOf(std::min(mebibytes, kMaxMebibytes) * kMiB);
    if (first) std::fill(slots.begin(), slots.begin() + last, divisions);
    slots[last] = divisions;
    first = false;
  }
  return slots;
}

void ParseSetting(std::string_view key, std::string_view value, AllocatorConfig& config) {
  int64_t large_segment_mb = config.large_segment_bytes / kMiB;  // read before all others
  if (key == "max_split_size_mb") {
    config.max_split_size_bytes = ParseMebibytes(key, value, large_segment_mb);
  } else if (key == "max_non_split_rounding_mb") {
    config.max_non_split_rounding_bytes = ParseMebibytes(key, value, large_segment_mb);
  } else if (key == "large_segment_size_mb") {
    config.large_segment_bytes = ParseMebibytes(key, value, 11);
  } else if (key == "garbage_collection_threshold") {
    config.garbage_collection_threshold = ParseRatio(key, value, false);
  } else if (key == "per_process_memory_fraction") {
    config.per_process_memory_fraction = ParseRatio(key, value, true);
  } else if (key == "expandable_segments") {
    config.expandable_segments = ParseBool(key, value);
  } else if (key == "pinned_max_round_threshold_mb") {
    config.pinned_max_round_bytes = ParseMebibytes(key, value, 0);
  } else if (key == "roundup_power2_divisions") {
    config.roundup_power2_divisions =
        value.front() == '[' ? ParseDivisionList(key, value, config.rules)
                             : std::vector<int64_t>{ParseDivisions(key, value)};
  } else if (key == "backend" && value != "native") {
    Reject(key, value, "is not modelled; only native is");
  } else if (key == "throw_on_cudamalloc_oom" && value != "False") {
    Reject(key, value, "is not modelled; only False is");
  } else if (key == "backend" || key == "throw_on_cudamalloc_oom" ||
             std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) !=
                 kWithoutEffect.end()) {
    if (!config.other.empty()) config.other += ",";
    config.other += std::string(key) + ":" + std::string(value);
  } else {
    Reject(key, value, "is no setting of PyTorch's allocator; known are those in its "
                       "\"Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF\"");
  }
}

std::string Ratio(double value) {
  std::array<char, 32> digits;
  auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string DivisionText(const std::vector<int64_t>& slots) {
  if (slots.size() == 1) return std::to_string(slots[0]);
  std::string text = "[";
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (slot > 0) text += ",";
    text += std::to_string(int64_t{1} << slot) + ":" + std::to_string(slots[slot]);
  }
  return text + "]";
}

}  // namespace

int64_t AllocatorConfig::DivisionsFor(int64_t bytes) const {
  if (roundup_power2_divisions.empty()) return 0;
  if (roundup_power2_divisions.size() == 1) return roundup_power2_divisions[0];
  return roundup_power2_divisions[SlotOf(bytes)];
}

AllocatorConfig AllocatorConfig::Parse(std::string_view text, AllocatorRules rules) {
  AllocatorConfig config;
  config.rules = rules;
  std::string compact = WithoutSpaces(text);
  std::vector<std::pair<std::string_view, std::string_view>> settings;
  for (std::string_view setting : SplitSettings(compact)) {
    size_t colon = setting.find(':');
    if (colon == std::string_view::npos || colon + 1 == setting.size()) {
      Reject(setting, "", "needs a value: key:value");
    }
    settings.emplace_back(setting.substr(0, colon), setting.substr(colon + 1));
  }
  auto is_large_segment = [](const auto& setting) {
    return setting.first == "large_segment_size_mb";
  };
  std::stable_partition(settings.begin(), settings.end(), is_large_segment);
  for (auto [key, value] : settings) {
    ParseSetting(key, value, config);
    if (key == "large_segment_size_mb") {
      config.max_non_split_rounding_bytes = config.large_segment_bytes;
    }
  }
  return config;
}

AllocatorConfig AllocatorConfig::From(const AllocatorTunables& tunables) {
  AllocatorConfig config;
  if (tunables.roundup_power2_divisions > 0) {
    config.roundup_power2_divisions = {tunables.roundup_power2_divisions};
  }
  if (tunables.max_split_size_mb > 0) {
    config.max_split_size_bytes = tunables.max_split_size_mb * kMiB;
  }
  config.garbage_collection_threshold = tunables.garbage_collection_threshold;
  config.expandable_segments = tunables.expandable_segments;
  return config;
}

std::string AllocatorConfig::ToString() const {
  AllocatorConfig defaults;
  defaults.max_non_split_rounding_bytes = large_segment_bytes;
  std::string text;
  auto add = [&](bool differs, const std::string& key, const std::string& value) {
    if (!differs) return;
    if (!text.empty()) text += ",";
    text += key + ":" + value;
  };
  auto mebibytes = [](int64_t bytes) { return std::to_string(bytes / kMiB); };
  add(!roundup_power2_divisions.empty(), "roundup_power2_divisions",
      DivisionText(roundup_power2_divisions));
  add(max_split_size_bytes != defaults.max_split_size_bytes, "max_split_size_mb",
      mebibytes(max_split_size_bytes));
  add(max_non_split_rounding_bytes != defaults.max_non_split_rounding_bytes,
      "max_non_split_rounding_mb", mebibytes(max_non_split_rounding_bytes));
  add(large_segment_bytes != defaults.large_segment_bytes, "large_segment_size_mb",
      mebibytes(large_segment_bytes));
  add(garbage_collection_threshold > 0, "garbage_collection_threshold",
      Ratio(garbage_collection_threshold));
  add(expandable_segments, "expandable_segments", "True");
  add(per_process_memory_fraction < 1, "per_process_memory_fraction",
      Ratio(per_process_memory_fraction));
  add(pinned_max_round_bytes != defaults.pinned_max_round_bytes, "pinned_max_round_threshold_mb",
      mebibytes(pinned_max_round_bytes));
  if (!other.empty()) text += (text.empty() ? "" : ",") + other;
  return text;
}

}  // namespace hbmtune::memory
