#include "kernels/core/regular_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "kernels/core/units.h"

namespace hbmtune {

std::string ReadRegularFile(const std::string& path, size_t most_bytes) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    throw std::invalid_argument("cannot read " + path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) throw std::invalid_argument(path + " is no regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::invalid_argument("cannot read " + path + ": " + std::strerror(errno));
  std::string bytes;
  for (char chunk[1 << 16]; bytes.size() <= most_bytes;) {
    file.read(chunk, sizeof chunk);
    bytes.append(chunk, static_cast<size_t>(file.gcount()));
    if (!file) break;
  }
  if (bytes.size() <= most_bytes) return bytes;
  throw std::invalid_argument(path + " has over " +
                              FormatBytes(static_cast<int64_t>(most_bytes)));
}

}  // namespace hbmtune
