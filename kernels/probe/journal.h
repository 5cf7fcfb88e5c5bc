#pragma once

#include <string>

namespace hbmtune::probe {

// Appends one line to the file in one write, so that lines of concurrent probes do not mix.
// Nothing for an empty path; a file that cannot be written is a line on stderr, not a failure.
void AppendLine(const std::string& path, const std::string& line);
// The same for a file that is open for appending; nothing for -1.
void AppendLine(int file, const std::string& line);

// Puts `bytes` in the file so that it is there whole or not at all, and stays over a power cut:
// written beside it, synced, renamed. The same for an empty path and for failure.
void WriteWhole(const std::string& path, const std::string& bytes);
// Into an empty file that is open for writing: what is there is whole when its length says so, and
// it is synced. Nothing for -1.
void WriteWhole(int file, const std::string& bytes);

}  // namespace hbmtune::probe
