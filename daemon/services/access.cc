#include "daemon/services/access.h"

#include <absl/strings/str_cat.h>
#include <grp.h>
#include <grpc/grpc_security_constants.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "daemon/base/errors.h"

namespace hbmtune::daemon {
namespace {

struct Method {
  std::string_view name;
  Role role;
};

constexpr Method kMethods[] = {
    {"hbmtune.v1.Tuning.CreateStudy", Role::kTune},
    {"hbmtune.v1.Tuning.GetStudy", Role::kRead},
    {"hbmtune.v1.Tuning.ListStudies", Role::kRead},
    {"hbmtune.v1.Tuning.WatchStudy", Role::kRead},
    {"hbmtune.v1.Tuning.CancelStudy", Role::kTune},
    {"hbmtune.v1.Tuning.ListTrials", Role::kRead},
    {"hbmtune.v1.Tuning.SuggestTrial", Role::kTune},
    {"hbmtune.v1.Tuning.ReportProgress", Role::kTune},
    {"hbmtune.v1.Tuning.CompleteTrial", Role::kTune},
    {"hbmtune.v1.Tuning.Recommend", Role::kRead},
    {"hbmtune.v1.Tuning.Estimate", Role::kRead},
    {"hbmtune.v1.Tuning.Sweep", Role::kRead},
    {"hbmtune.v1.Tuning.Verify", Role::kRead},
    {"hbmtune.v1.Tuning.Export", Role::kRead},
    {"hbmtune.v1.Devices.ListDevices", Role::kRead},
    {"hbmtune.v1.Devices.GetDevice", Role::kRead},
    {"hbmtune.v1.Devices.AcquireLease", Role::kTune},
    {"hbmtune.v1.Devices.WaitLease", Role::kTune},
    {"hbmtune.v1.Devices.RenewLease", Role::kTune},
    {"hbmtune.v1.Devices.ReleaseLease", Role::kTune},
    {"hbmtune.v1.Devices.Quiesce", Role::kAdmin},
    {"hbmtune.v1.Devices.Resume", Role::kAdmin},
    {"hbmtune.v1.Devices.Calibrate", Role::kAdmin},
    {"hbmtune.v1.Devices.ReportAllocator", Role::kTune},
    {"hbmtune.v1.Devices.WatchMemory", Role::kRead},
    {"hbmtune.v1.Devices.ListMemoryMinutes", Role::kRead},
    {"hbmtune.v1.Devices.ListFindings", Role::kRead},
};

std::set<int64_t> GroupIds(const std::string& names) {
  std::set<int64_t> ids;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    if (const group* found = getgrnam(name.c_str())) ids.insert(found->gr_gid);
  }
  return ids;
}

// The user's groups as the system has them now, and the one that the connection was made with.
std::vector<gid_t> GroupsOf(const PeerIdentity& identity) {
  std::vector<gid_t> groups(64);
  int count = static_cast<int>(groups.size());
  const passwd* user = getpwuid(static_cast<uid_t>(identity.uid));
  if (user == nullptr ||
      getgrouplist(user->pw_name, user->pw_gid, groups.data(), &count) < 0) {
    count = 0;
  }
  groups.resize(static_cast<size_t>(count));
  groups.push_back(static_cast<gid_t>(identity.gid));
  return groups;
}

bool AnyIn(const std::vector<gid_t>& groups, const std::set<int64_t>& wanted) {
  return std::any_of(groups.begin(), groups.end(),
                     [&](gid_t group) { return wanted.contains(group); });
}

}  // namespace

Role RoleFor(std::string_view full_method) {
  for (const Method& method : kMethods) {
    if (method.name == full_method) return method.role;
  }
  return Role::kNone;
}

Access::Access(const Peers& peers, const Clock& clock, const Rules& rules)
    : peers_(peers), rate_limit_(clock) {
  SetRules(rules);
}

void Access::SetRules(const Rules& rules) {
  rate_limit_.SetRate(rules.requests_per_second);
  std::set<int64_t> admins = GroupIds(rules.admin_groups);
  std::set<int64_t> tuners = GroupIds(rules.tune_groups);
  std::set<int64_t> readers = GroupIds(rules.read_groups);
  auto tls_users = ParseTlsUsers(rules.tls_users);
  absl::MutexLock lock(&mutex_);
  tls_users_ = tls_users.ok() ? *std::move(tls_users) : std::map<std::string, PeerIdentity>();
  admin_gids_ = std::move(admins);
  tune_gids_ = std::move(tuners);
  read_gids_ = std::move(readers);
  default_role_ = rules.default_role;
  known_.clear();
}

Role Access::Work(const PeerIdentity& identity) const {
  if (identity.uid == 0 || identity.uid == geteuid()) return Role::kAdmin;
  const std::vector<gid_t> groups = GroupsOf(identity);
  if (AnyIn(groups, admin_gids_)) return Role::kAdmin;
  if (AnyIn(groups, tune_gids_)) return std::max(Role::kTune, default_role_);
  if (AnyIn(groups, read_gids_)) return std::max(Role::kRead, default_role_);
  return default_role_;
}

Role Access::RoleOf(const PeerIdentity& identity) const {
  absl::MutexLock lock(&mutex_);
  auto [entry, is_new] = known_.try_emplace(identity.uid, Role::kNone);
  if (is_new) entry->second = Work(identity);
  return entry->second;
}

absl::StatusOr<PeerIdentity> Access::Identify(const grpc::CallbackServerContext& context) const {
  if (auto identity = peers_.Find(context.peer())) return *identity;
  const auto certificate = context.auth_context();
  if (certificate == nullptr || !certificate->IsPeerAuthenticated()) {
    return absl::UnauthenticatedError("the connection does not say who calls");
  }
  std::string names;
  absl::MutexLock lock(&mutex_);
  for (grpc::string_ref value : certificate->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    const std::string name(value.data(), value.size());
    if (auto user = tls_users_.find(name); user != tls_users_.end()) return user->second;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate's names (", names, ") are nobody's here: see tls_users"));
}

absl::StatusOr<std::map<std::string, PeerIdentity>> ParseTlsUsers(const std::string& text) {
  std::map<std::string, PeerIdentity> users;
  std::istringstream list(text);
  for (std::string pair; std::getline(list, pair, ',');) {
    const size_t sign = pair.rfind('=');
    if (sign == std::string::npos || sign == 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", pair, "' is not NAME=USER"));
    }
    const std::string user = pair.substr(sign + 1);
    const passwd* found = getpwnam(user.c_str());
    if (found == nullptr) return absl::InvalidArgumentError("there is no user '" + user + "'");
    users[pair.substr(0, sign)] = {found->pw_uid, found->pw_gid, 0};
  }
  return users;
}

absl::Status Access::CheckRate(const Caller& caller) const {
  if (caller.role == Role::kAdmin) return absl::OkStatus();
  const absl::Duration wait = rate_limit_.Take(caller.identity.uid);
  if (wait == absl::ZeroDuration()) return absl::OkStatus();
  return WithRetry(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                  "user ", caller.identity.uid,
                                  " asks more often than max_requests_per_user lets him")),
                              "RATE_EXCEEDED"),
                   wait);
}

absl::StatusOr<Caller> Access::Check(const grpc::CallbackServerContext& context,
                                     std::string_view full_method) const {
  auto identity = Identify(context);
  if (!identity.ok()) return identity.status();
  const Caller caller{*identity, RoleOf(*identity)};
  if (absl::Status status = CheckRate(caller); !status.ok()) return status;
  const Role needed = RoleFor(full_method);
  if (needed != Role::kNone && caller.role >= needed) return caller;
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        "user ", identity->uid, " has the role '", std::string(Name(caller.role)),
                        "', ", std::string(full_method), " needs '", std::string(Name(needed)),
                        "'")),
                    "ROLE_MISSING", {{"needed", std::string(Name(needed))}});
}

}  // namespace hbmtune::daemon
