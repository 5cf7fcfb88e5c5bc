#include "daemon/prober/unit_link.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace hbmtune::daemon {
namespace {

// For the connection and the request: a socket that nobody serves fills up.
constexpr timeval kSendPatience = {5, 0};

class UnitLink final : public ProbeLink {
 public:
  UnitLink(UniqueFd socket, std::vector<UniqueFd> files)
      : socket_(std::move(socket)), files_(std::move(files)) {}

  int64_t pid() const override { return 0; }
  UniqueFd& output() override { return socket_; }
  UniqueFd& errors() override { return none_; }
  int ended_fd() const override { return -1; }
  std::string StillThere() const override {
    return "is still connected although it was told to stop";
  }

  void Send(const std::string& request) override {
    std::string_view rest = request;
    for (bool first = true; !rest.empty(); first = false) {
      const ssize_t size = SendSome(rest, first);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) break;
      rest.remove_prefix(static_cast<size_t>(size));
    }
    files_.clear();
    fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    if (!rest.empty()) socket_.Reset();
  }

  std::optional<ProbeEnd> Ended() override {
    pollfd other{socket_.get(), 0, 0};  // POLLHUP: the other side is closed, not only its half
    if (socket_.valid() && (poll(&other, 1, 0) <= 0 || (other.revents & POLLHUP) == 0)) {
      return std::nullopt;
    }
    return ProbeEnd{"ended its connection without a result",
                    "; the journal of its unit says more: journalctl -u 'hbmtune-probe@*'"};
  }

  void Stop(StopLadder::Action action) override {
    if (action == StopLadder::Action::kInterrupt) shutdown(socket_.get(), SHUT_WR);
  }

 private:
  ssize_t SendSome(std::string_view bytes, bool with_files) {
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<int> numbers;
    for (const UniqueFd& file : files_) numbers.push_back(file.get());
    const size_t size = numbers.size() * sizeof(int);
    std::vector<char> control(CMSG_SPACE(size));
    if (with_files && !numbers.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(header), numbers.data(), size);
    }
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  }

  UniqueFd socket_;
  UniqueFd none_;
  std::vector<UniqueFd> files_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeLink>> ConnectProbe(const std::string& socket_path,
                                                        std::vector<UniqueFd> files) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("the path ", socket_path, " is too long"));
  }
  socket_path.copy(address.sun_path, socket_path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot make a socket");
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendPatience, sizeof kSendPatience);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no probe can be had at ", socket_path, ": ", std::strerror(errno),
        "; is hbmtune-probe.socket active? (systemctl start hbmtune-probe.socket)"));
  }
  return std::make_unique<UnitLink>(std::move(fd), std::move(files));
}

}  // namespace hbmtune::daemon
