#include "daemon/ready.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

namespace hbmtune::daemon {

void ReadyNote::Ready(const std::string& socket_path, int http_port) {
  std::string text = absl::StrCat("ready ", socket_path, "\n");
  if (http_port > 0) absl::StrAppend(&text, "http 127.0.0.1:", http_port, "\n");
  Send(text);
}

void ReadyNote::Failed(const absl::Status& why) {
  Send(absl::StrCat("error ", std::string(why.message()), "\n"));
}

void ReadyNote::Send(const std::string& text) {
  if (!fd_.valid()) return;
  // A starter that no longer listens is no concern of ours (SIGPIPE is ignored by then).
  if (write(fd_.get(), text.data(), text.size()) < 0) fd_.Reset();
  fd_.Reset();
}

}  // namespace hbmtune::daemon
