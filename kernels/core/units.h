#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hbmtune {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// "512 B", "1.50 KiB", "63.98 GiB": three significant digits or so, for people.
std::string FormatBytes(int64_t bytes);

// "1GiB", "512 MiB", "1.5g", "2GB" (decimal), "1048576": nothing for anything else, for a
// negative size and for one over 2^62.
std::optional<int64_t> ParseBytes(std::string_view text);

// "60s", "1.5m", "2h", "90": seconds; nothing for anything else or a negative time.
std::optional<double> ParseSeconds(std::string_view text);

}  // namespace hbmtune
