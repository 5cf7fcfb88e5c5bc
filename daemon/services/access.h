#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/status/statusor.h>
#include <absl/synchronization/mutex.h>
#include <grpcpp/server_context.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "daemon/net/peers.h"
#include "daemon/services/rate_limit.h"
#include "kernels/core/visit.h"

namespace hbmtune::daemon {

// Weakest to strongest; each may do what those before it may.
enum class Role : uint8_t { kNone, kRead, kTune, kAdmin };

}  // namespace hbmtune::daemon

template <>
struct hbmtune::EnumNames<hbmtune::daemon::Role> {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "read", "tune", "admin"};
};

namespace hbmtune::daemon {

// The one table of what a method asks for. A method that it does not name is for nobody.
Role RoleFor(std::string_view full_method);  // "hbmtune.v1.Tuning.CreateStudy"

// Who calls, and what he may.
struct Caller {
  PeerIdentity identity;
  Role role = Role::kNone;

  bool MayChange(int64_t owner_uid) const {
    return role == Role::kAdmin || identity.uid == owner_uid;
  }
};

// "NAME=USER,…": a certificate's subject alternative name to a user of this node.
// INVALID_ARGUMENT names what is no such pair, or the user that does not exist.
absl::StatusOr<std::map<std::string, PeerIdentity>> ParseTlsUsers(const std::string& text);

// Roles of users: root and the daemon's own user are admins, the others by their groups (names,
// comma-separated), else the default. Any thread.
class Access {
 public:
  struct Rules {
    std::string admin_groups;
    std::string tune_groups;
    std::string read_groups;
    Role default_role = Role::kTune;
    std::string tls_users;  // ParseTlsUsers
    double requests_per_second = 1000;  // of each user who is no admin, see RateLimit
  };
  Access(const Peers& peers, const Clock& clock, const Rules& rules);

  // From now on; users' groups are asked for anew.
  void SetRules(const Rules& rules) ABSL_LOCKS_EXCLUDED(mutex_);

  // Who calls: by the socket's credentials, over TCP by the certificate. UNAUTHENTICATED if the
  // connection is gone or its certificate names nobody, PERMISSION_DENIED (ROLE_MISSING) if the
  // role of the caller is too weak for the method, RESOURCE_EXHAUSTED (RATE_EXCEEDED) with the time
  // to wait if he asks too often.
  absl::StatusOr<Caller> Check(const grpc::CallbackServerContext& context,
                               std::string_view full_method) const ABSL_LOCKS_EXCLUDED(mutex_);
  Role RoleOf(const PeerIdentity& identity) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<PeerIdentity> Identify(const grpc::CallbackServerContext& context) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  Role Work(const PeerIdentity& identity) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status CheckRate(const Caller& caller) const;

  const Peers& peers_;
  mutable RateLimit rate_limit_;
  mutable absl::Mutex mutex_;
  std::set<int64_t> admin_gids_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> tune_gids_ ABSL_GUARDED_BY(mutex_);
  std::set<int64_t> read_gids_ ABSL_GUARDED_BY(mutex_);
  Role default_role_ ABSL_GUARDED_BY(mutex_) = Role::kNone;
  std::map<std::string, PeerIdentity> tls_users_ ABSL_GUARDED_BY(mutex_);
  // Groups of a user are asked of the system once: a change holds after SetRules.
  mutable std::map<int64_t, Role> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon
