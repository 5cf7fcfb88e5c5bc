#include "daemon/telemetry/file_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>

namespace hbmtune {

std::optional<std::string> ReadText(const std::string& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  char buffer[4096];
  ssize_t count = read(file, buffer, sizeof buffer);
  close(file);
  if (count < 0) return std::nullopt;
  std::string text(buffer, static_cast<size_t>(count));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

std::optional<int64_t> ParseInteger(const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  int base = 10;
  if (text.rfind("0x", 0) == 0) {
    begin += 2;
    base = 16;
  }
  int64_t value = 0;
  auto [rest, error] = std::from_chars(begin, end, value, base);
  if (error != std::errc() || rest != end || begin == end) return std::nullopt;
  return value;
}

std::optional<int64_t> ReadInteger(const std::string& path, int64_t least, int64_t most) {
  auto text = ReadText(path);
  auto value = text ? ParseInteger(*text) : std::nullopt;
  if (!value || *value < least || *value > most) return std::nullopt;
  return value;
}

std::map<std::string, int64_t> ReadProperties(const std::string& path) {
  std::map<std::string, int64_t> properties;
  std::istringstream lines(ReadText(path).value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    if (auto value = ParseInteger(line.substr(space + 1))) {
      properties[line.substr(0, space)] = *value;
    }
  }
  return properties;
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (!folder) return names;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace hbmtune
