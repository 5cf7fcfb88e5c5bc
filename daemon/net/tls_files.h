#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hbmtune::daemon {

// The three PEM files of a TLS server: its certificate (with what leads to its root), the key, and
// the roots that clients' certificates must lead to; and the folder of lists of revoked
// certificates, or "".
struct TlsPaths {
  std::string certificate;
  std::string key;
  std::string roots;
  std::string crl_directory;
};

struct TlsSet {
  std::string certificate;
  std::string key;
  std::string roots;
  std::string revoked;  // names and bytes of the lists

  bool operator==(const TlsSet&) const = default;
};

// Whether the three can serve together now: each can be read to its end, the certificate is valid
// at `now` and belongs to the key. FAILED_PRECONDITION says what is wrong, without naming a file.
absl::Status CheckTlsSet(const TlsSet& set, absl::Time now);

// The set that is served, taken from files that somebody renews now and then, one after the other.
// What is read is checked as a whole; then it is put in DIRECTORY/N and DIRECTORY/current, a
// symbolic link, is moved there in one step. A bad set changes nothing. One thread at a time.
class TlsFiles {
 public:
  TlsFiles(TlsPaths source, std::string directory)
      : source_(std::move(source)), directory_(std::move(directory)) {}

  // Reads the files; true if a new set is served from now on, false if nothing has changed. A bad
  // set is told once: while it stays the same, later calls return false.
  absl::StatusOr<bool> Refresh(absl::Time now);
  // The files in use are not the newest, which are bad.
  bool refused() const { return refused_; }
  // Where the set in use is: through the symbolic link.
  TlsPaths served() const;

 private:
  absl::Status Install(const TlsSet& set);

  const TlsPaths source_;
  const std::string directory_;
  TlsSet last_read_;
  bool last_good_ = false;  // last_read_ is what is served
  bool refused_ = false;
  int64_t number_ = 0;
};

}  // namespace hbmtune::daemon
