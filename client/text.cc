#include "client/text.h"

#include <cmath>
#include <cstdio>

#include "kernels/core/json.h"

namespace hbmtune::client {
namespace {

bool StartsCodePoint(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

template <class... Args>
std::string Format(const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

std::string GroupThousands(std::string digits) {
  size_t first = !digits.empty() && digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace

size_t DisplayWidth(std::string_view utf8) {
  size_t width = 0;
  for (char c : utf8) width += StartsCodePoint(c);
  return width;
}

std::string Truncate(std::string_view utf8, size_t columns) {
  if (DisplayWidth(utf8) <= columns) return std::string(utf8);
  if (columns == 0) return "";
  size_t width = 0;
  size_t end = 0;
  for (; end < utf8.size(); ++end) {
    if (StartsCodePoint(utf8[end]) && width++ == columns - 1) break;
  }
  return std::string(utf8.substr(0, end)) + "…";
}

std::string PadRight(std::string_view utf8, size_t columns) {
  std::string text(utf8);
  size_t width = DisplayWidth(utf8);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

std::string PadLeft(std::string_view utf8, size_t columns) {
  size_t width = DisplayWidth(utf8);
  return std::string(width < columns ? columns - width : 0, ' ') + std::string(utf8);
}

std::vector<std::string> Wrap(std::string_view text, size_t columns) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    size_t end = text.find(' ');
    std::string_view word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (word.empty()) continue;
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (DisplayWidth(line) + 1 + DisplayWidth(word) <= columns) {
      line.append(" ").append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string ShellWord(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "-_./:@%+=,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string JoinWords(const std::vector<std::string>& words, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    text += words[i];
  }
  return text;
}

std::string FormatCount(int64_t count) { return GroupThousands(std::to_string(count)); }

std::string FormatNumber(double value) {
  double size = std::fabs(value);
  if (size >= 99.95 || size == 0) return GroupThousands(Format("%.0f", value));
  if (size >= 9.995) return Format("%.1f", value);
  if (size >= 0.9995) return Format("%.2f", value);
  return Format("%.3g", value);
}

std::string FormatDuration(double seconds) {
  if (seconds < 0.00995) return Format("%.1f ms", seconds * 1e3);
  if (seconds < 0.0995) return Format("%.0f ms", seconds * 1e3);
  if (seconds < 9.95) return Format(seconds < 0.995 ? "%.2f s" : "%.1f s", seconds);
  auto whole = static_cast<int64_t>(std::llround(seconds));
  auto part = [](int64_t n) { return static_cast<long long>(n); };
  if (whole < 60) return Format("%lld s", part(whole));
  if (whole < 3600) return Format("%lld min %02lld s", part(whole / 60), part(whole % 60));
  return Format("%lld h %02lld min", part(whole / 3600), part(whole / 60 % 60));
}

bool IsUtf8(const std::string& text) {
  try {
    (void)Json(text).dump();  // nlohmann/json is strict by default
  } catch (const Json::type_error&) {
    return false;
  }
  return true;
}

std::string FormatShare(double part, double whole) {
  return whole > 0 ? Format("%.0f %%", 100 * part / whole) : "? %";
}

}  // namespace hbmtune::client
