#pragma once

#include <absl/status/status.h>
#include <sys/types.h>

#include <string>

namespace hbmtune::client {

// The private daemon of one user: its socket is in the user's runtime folder, its data in the
// user's state folder. It leaves by itself after its last client.
class LocalDaemon {
 public:
  // $XDG_RUNTIME_DIR/hbmtune or /tmp/hbmtune-UID, $XDG_STATE_HOME/hbmtune or
  // ~/.local/state/hbmtune; `socket`, unless empty, in place of the usual one.
  static LocalDaemon OfThisUser(const std::string& socket = "");

  const std::string& socket() const { return socket_; }

  // Returns when the daemon listens. Several processes may call at once: one starts it, under a
  // lock, and the others join. UNAVAILABLE says why it did not start, in the daemon's own words.
  absl::Status JoinOrStart() const;

 private:
  LocalDaemon(std::string socket, std::string state_folder);
  absl::Status MakeSocketFolder() const;
  absl::Status Start() const;
  absl::Status AwaitSocket(pid_t child) const;
  absl::Status Spawn(pid_t& child) const;
  std::string LastLogLine() const;

  std::string socket_;
  std::string state_folder_;
  std::string log_;
};

}  // namespace hbmtune::client
