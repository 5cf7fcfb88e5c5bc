#include "kernels/probe/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

namespace hbmtune::probe {

void AppendLine(const std::string& path, const std::string& line) {
  if (path.empty()) return;
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const std::string text = line + "\n";
  if (file < 0 || write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    std::cerr << "hbmtune-probe: cannot write the journal " << path << ": "
              << std::strerror(errno) << '\n';
  }
  if (file >= 0) close(file);
}

}  // namespace hbmtune::probe
