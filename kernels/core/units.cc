#include "kernels/core/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace hbmtune {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Splits "1.5 GiB" into 1.5 and the lower-cased unit.
std::optional<std::pair<double, std::string>> Split(std::string_view text) {
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  std::string unit;
  for (char c : text.substr(rest - text.data())) {
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return std::pair(number, unit);
}

template <size_t N>
std::optional<double> Scale(std::string_view text, const std::array<Unit, N>& units) {
  auto parts = Split(text);
  if (!parts) return std::nullopt;
  for (const Unit& unit : units) {
    if (unit.name == parts->second) return parts->first * unit.factor;
  }
  return std::nullopt;
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while ((value >= 1024 || value <= -1024) && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

std::optional<int64_t> ParseBytes(std::string_view text) {
  static constexpr std::array<Unit, 15> kUnits = {{
      {"", 1}, {"b", 1}, {"k", 1024.0}, {"kib", 1024.0}, {"kb", 1e3},
      {"m", 1048576.0}, {"mib", 1048576.0}, {"mb", 1e6},
      {"g", 1073741824.0}, {"gib", 1073741824.0}, {"gb", 1e9},
      {"t", 1099511627776.0}, {"tib", 1099511627776.0}, {"tb", 1e12}, {"bytes", 1}}};
  auto bytes = Scale(text, kUnits);
  if (!bytes || *bytes > 4.6e18) return std::nullopt;
  return static_cast<int64_t>(*bytes);
}

std::optional<double> ParseSeconds(std::string_view text) {
  static constexpr std::array<Unit, 8> kUnits = {{{"", 1}, {"s", 1}, {"sec", 1}, {"ms", 1e-3},
                                                  {"m", 60}, {"min", 60}, {"h", 3600},
                                                  {"d", 86400}}};
  return Scale(text, kUnits);
}

}  // namespace hbmtune
