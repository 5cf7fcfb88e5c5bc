#include "client/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace hbmtune::client {
namespace {

int g_stdout_errno = 0;  // of the first failure; stdio keeps none

}  // namespace

void OpenStandardFiles() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void WriteOut(std::FILE* out, std::string_view text) {
  errno = 0;
  bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  written = std::fflush(out) == 0 && written;
  if (!written && out == stdout && g_stdout_errno == 0) g_stdout_errno = errno;
}

absl::Status OutputStatus() {
  if (g_stdout_errno == 0 || g_stdout_errno == EPIPE) return absl::OkStatus();
  return absl::InternalError(std::string("cannot write the output: ") +
                             std::strerror(g_stdout_errno));
}

}  // namespace hbmtune::client
