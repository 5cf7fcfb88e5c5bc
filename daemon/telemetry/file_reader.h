#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Small files of sysfs: read whole, parsed strictly.
namespace hbmtune {

// First 4 KiB without trailing white space; nothing if it cannot be read.
std::optional<std::string> ReadText(const std::string& path);
// A whole decimal or 0x number and nothing else.
std::optional<int64_t> ParseInteger(const std::string& text);
// A whole number within bounds; nothing if absent, unreadable or out of them.
std::optional<int64_t> ReadInteger(const std::string& path, int64_t least, int64_t most);
// "key value" lines, as KFD writes its properties. Values that are no numbers are left out.
std::map<std::string, int64_t> ReadProperties(const std::string& path);
// Names in a folder, sorted; empty if it cannot be read.
std::vector<std::string> ListFolder(const std::string& path);

}  // namespace hbmtune
