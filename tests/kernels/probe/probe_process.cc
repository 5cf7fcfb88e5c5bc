#include "tests/kernels/probe/probe_process.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace hbmtune::testing {

ProbeProcess::ProbeProcess() {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipes");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::string path = std::string(HBMTUNE_BINARY_DIR) + "/hbmtune-probe";
  char* const argv[] = {path.data(), nullptr};
  const int error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  if (error != 0) throw std::runtime_error("cannot start " + path);
}

ProbeProcess::~ProbeProcess() {
  CloseInput();
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(output_);
}

void ProbeProcess::Send(const v1::ProbeRequest& request) {
  if (!google::protobuf::util::SerializeDelimitedToFileDescriptor(request, input_)) {
    throw std::runtime_error("the probe reads nothing");
  }
}

void ProbeProcess::CloseInput() {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

std::optional<v1::ProbeEvent> ProbeProcess::Next() {
  // Byte by byte up to the length, so that nothing is read ahead.
  uint32_t length = 0;
  for (int shift = 0;; shift += 7) {
    unsigned char byte = 0;
    if (read(output_, &byte, 1) != 1) return std::nullopt;
    length |= static_cast<uint32_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  std::string text(length, '\0');
  for (size_t got = 0; got < length;) {
    const ssize_t n = read(output_, text.data() + got, length - got);
    if (n <= 0) return std::nullopt;
    got += static_cast<size_t>(n);
  }
  v1::ProbeEvent event;
  if (!event.ParseFromString(text)) throw std::runtime_error("not an event");
  return event;
}

std::vector<v1::ProbeEvent> ProbeProcess::All() {
  std::vector<v1::ProbeEvent> events;
  while (auto event = Next()) {
    events.push_back(*event);
    if (event->has_finished()) break;
  }
  return events;
}

int ProbeProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hbmtune::testing
