#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "client/file_descriptor.h"

namespace hbmtune::client {

// The private daemon of one user. It leaves by itself after its last client.
class LocalDaemon {
 public:
  // `socket`: empty for the usual one, which is $XDG_RUNTIME_DIR/hbmtune/private.sock or, without
  // that variable, private.sock in the state folder ($XDG_STATE_HOME or ~/.local/state, hbmtune).
  explicit LocalDaemon(std::string socket = "");

  const std::string& socket() const { return socket_; }

  // The socket of a daemon that listens: the one that runs, or a new one. Several processes may
  // call at once: all of them may start one, and the state folder's lock lets one daemon stay,
  // while the others say "ready" on its behalf. UNAVAILABLE says why there is none, in the
  // daemon's own words.
  absl::StatusOr<std::string> JoinOrStart() const;

 private:
  absl::StatusOr<std::string> Start() const;
  // The daemon's note arrives at the other end of `note`.
  absl::Status Spawn(const FileDescriptor& note) const;

  std::string socket_;
  bool usual_;
};

// What the daemon wrote on its ready descriptor: the socket of "ready PATH", the sentence of
// "error SENTENCE" as UNAVAILABLE, or that it ended without a word.
absl::StatusOr<std::string> ReadReadyNote(const FileDescriptor& note);

}  // namespace hbmtune::client
