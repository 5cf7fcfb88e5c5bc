#include "kernels/probe/request.h"

#include <google/protobuf/io/coded_stream.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hbmtune::probe {
namespace {

// A model of a hundred layers is some kilobytes.
constexpr uint32_t kMostRequestBytes = 16 << 20;
constexpr size_t kMostFiles = 8;

void TakeFiles(msghdr& message, std::vector<int>& files) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(part) + i * sizeof(int), sizeof file);
      files.push_back(file);
    }
  }
}

// As read(), and takes the descriptors that come along.
ssize_t Receive(int input, char* into, size_t size, std::vector<int>& files) {
  iovec bytes{into, size};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFiles * sizeof(int))];
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(input, &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == ENOTSOCK) return read(input, into, size);
  if (got >= 0) TakeFiles(message, files);
  return got;
}

enum class Parsed { kPart, kWhole, kWrong };

Parsed Parse(const std::string& bytes, v1::ProbeRequest& message) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  constexpr size_t kLongestLength = 5;
  uint32_t size = 0;
  if (!input.ReadVarint32(&size)) {
    return bytes.size() < kLongestLength ? Parsed::kPart : Parsed::kWrong;
  }
  if (size > kMostRequestBytes) return Parsed::kWrong;
  const auto start = static_cast<size_t>(input.CurrentPosition());
  if (bytes.size() < start + size) return Parsed::kPart;
  const bool right = message.ParseFromArray(bytes.data() + start, static_cast<int>(size));
  return right ? Parsed::kWhole : Parsed::kWrong;
}

void NameFiles(const std::vector<int>& files, Request& request) {
  for (size_t i = 0; i < files.size(); ++i) {
    const bool named = i < static_cast<size_t>(request.message.files_size());
    const auto kind = named ? request.message.files(static_cast<int>(i))
                            : v1::PROBE_FILE_UNSPECIFIED;
    if (kind == v1::PROBE_FILE_RESULT) request.result_file = files[i];
    if (kind == v1::PROBE_FILE_JOURNAL) request.journal_file = files[i];
  }
}

}  // namespace

std::optional<Request> ReadRequest(int input) {
  Request request;
  std::string bytes;
  std::vector<int> files;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = Receive(input, buffer, sizeof buffer, files);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    bytes.append(buffer, static_cast<size_t>(got));
    const Parsed parsed = Parse(bytes, request.message);
    if (parsed == Parsed::kWrong) return std::nullopt;
    if (parsed == Parsed::kPart) continue;
    NameFiles(files, request);
    return request;
  }
}

}  // namespace hbmtune::probe
