#include "daemon/net/acceptor.h"

#include <absl/time/clock.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace hbmtune::daemon {
namespace {

constexpr int kFirstNumber = 256;  // below are the daemon's own files
constexpr int kListener = -1;
constexpr int kWake = -2;

void Watch(int epoll, int fd, uint32_t events, int tag) {
  epoll_event event{};
  event.events = events;
  event.data.fd = tag;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

PeerIdentity IdentityOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  return {credentials.uid, credentials.gid, credentials.pid};
}

// Two descriptors a connection: the soft limit of 1024 would be too near. What holds afterwards: a
// sandbox may forbid to change it.
int RaiseFileLimit() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min(limit.rlim_cur, kEnough));
}

}  // namespace

Acceptor::Acceptor(UnixSocket socket, Peers& peers, const Limits& limits, Serve serve)
    : socket_(std::move(socket)),
      peers_(peers),
      serve_(std::move(serve)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      file_limit_(RaiseFileLimit()),
      room_(static_cast<size_t>(std::max(file_limit_ - kFirstNumber, 0)) / 2),
      next_number_(kFirstNumber),
      last_number_(file_limit_ * 3 / 4),
      limits_(limits),
      idle_since_(absl::Now()) {
  Watch(epoll_.get(), socket_.fd(), EPOLLIN, kListener);
  Watch(epoll_.get(), wake_.get(), EPOLLIN, kWake);
  thread_ = std::thread([this] { Run(); });
}

Acceptor::~Acceptor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Acceptor::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    for (int i = 0; i < count; ++i) {
      const int tag = events[static_cast<size_t>(i)].data.fd;
      if (tag == kListener) {
        AcceptAll();
      } else if (tag != kWake) {
        // The registration belongs to the open file, which gRPC's descriptor keeps alive.
        epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched_[tag].get(), nullptr);
        peers_.Remove(tag);
        watched_.erase(tag);
        if (watched_.empty()) idle_since_ = absl::Now();
      }
    }
  }
}

void Acceptor::AcceptAll() {
  for (;;) {
    UniqueFd connection(
        accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return;
    AcceptOne(std::move(connection));
  }
}

int Acceptor::NextNumber() {
  if (++next_number_ >= last_number_) next_number_ = kFirstNumber;
  return next_number_;
}

void Acceptor::AcceptOne(UniqueFd connection) {
  const PeerIdentity identity = IdentityOf(connection.get());
  if (watched_.size() >= std::min(limits_.connections, room_) ||
      peers_.CountOf(identity.uid) >= limits_.connections_of_uid) {
    return;  // closed: the client sees UNAVAILABLE
  }
  UniqueFd duplicate(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  UniqueFd moved(fcntl(connection.get(), F_DUPFD_CLOEXEC, NextNumber()));
  if (!duplicate.valid() || !moved.valid()) return;
  const int number = moved.Release();
  next_number_ = number;
  peers_.Add(number, identity);
  // Only the end of the connection wakes us: EPOLLHUP needs no asking for, EPOLLRDHUP does.
  Watch(epoll_.get(), duplicate.get(), EPOLLRDHUP, number);
  watched_[number] = std::move(duplicate);
  serve_(number);
}

void Acceptor::SetLimits(const Limits& limits) {
  std::lock_guard lock(mutex_);
  limits_ = limits;
}

absl::Duration Acceptor::IdleFor() const {
  std::lock_guard lock(mutex_);
  return watched_.empty() ? absl::Now() - idle_since_ : absl::ZeroDuration();
}

bool Acceptor::CloseIfUnused() {
  std::lock_guard lock(mutex_);
  if (!watched_.empty()) return false;
  socket_.Unlink();
  AcceptAll();  // who connected just before
  if (watched_.empty()) {
    stopping_ = true;
    return true;
  }
  // Somebody did: listen again under the same lock.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket_.fd(), nullptr);
  if (socket_.Relisten().ok()) Watch(epoll_.get(), socket_.fd(), EPOLLIN, kListener);
  return false;
}

}  // namespace hbmtune::daemon
