#pragma once

#include <cstddef>
#include <string>

namespace hbmtune {

// The bytes of the file at `path` (links are followed). Throws std::invalid_argument with a
// sentence that names it: it cannot be read, is no regular file (a FIFO would block, a device
// might never end), or has over `most_bytes`.
std::string ReadRegularFile(const std::string& path, size_t most_bytes);

}  // namespace hbmtune
