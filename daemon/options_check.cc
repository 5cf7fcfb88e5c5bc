#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "daemon/http/http_server.h"
#include "daemon/options.h"
#include "daemon/services/access.h"

namespace hbmtune::daemon {
namespace {

struct Complaint {
  std::string option;
  std::string value;
  bool quoted;  // in a file
  std::string why;
};
using Verdict = std::optional<Complaint>;  // nothing: all is well

template <class T>
Verdict Wrong(std::string_view option, const T& value, const std::string& why) {
  return Complaint{std::string(option), absl::StrCat(value), std::is_same_v<T, std::string>, why};
}

// "--max-connections 0: must be …", "FILE:2: max_connections = 0: must be …"
std::string Sentence(const Complaint& complaint, const Origins& origins) {
  const auto& [option, value, quoted, why] = complaint;
  const auto origin = origins.find(option);
  if (origin == origins.end()) {
    return absl::StrCat("--", absl::StrReplaceAll(option, {{"_", "-"}}), " ", value, ": ", why);
  }
  const std::string quote = quoted ? "\"" : "";
  return absl::StrCat(origin->second, ": ", option, " = ", quote, value, quote, ": ", why);
}

Verdict CheckRange(std::string_view option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return std::nullopt;
  return Wrong(option, value, absl::StrCat("must be from ", least, " to ", most));
}

Verdict CheckTime(std::string_view option, double value) {
  constexpr double kMost = 1e9;  // some thirty years, in seconds
  if (value >= 0 && value <= kMost) return std::nullopt;
  return Wrong(option, value, "must be a time from 0 to 1e9");
}

Verdict CheckConnectionAge(double seconds) {
  if (seconds >= 1 && seconds <= 86400) return std::nullopt;
  return Wrong("tls_connection_seconds", seconds, "it must be between 1 and 86400");
}

Verdict CheckFolder(std::string_view option, const std::string& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return std::nullopt;
  return Wrong(option, path, "there is no such folder");
}

Verdict CheckProgram(std::string_view option, const std::string& path) {
  std::error_code error;
  if (path.empty()) return std::nullopt;
  if (!std::filesystem::exists(path, error)) return Wrong(option, path, "there is no such file");
  if (std::filesystem::is_directory(path, error) || access(path.c_str(), X_OK) != 0) {
    return Wrong(option, path, "is no program that can be run");
  }
  return std::nullopt;
}

Verdict CheckSocketPath(std::string_view option, const std::string& path) {
  if (path.size() < sizeof(sockaddr_un::sun_path)) return std::nullopt;
  return Wrong(option, path, "is longer than the 107 bytes that an address of a socket holds");
}

Verdict CheckGroups(std::string_view option, const std::string& names) {
  const std::vector<std::string> groups = absl::StrSplit(names, ',', absl::SkipWhitespace());
  for (std::string group : groups) {
    absl::StripAsciiWhitespace(&group);
    if (getgrnam(group.c_str()) != nullptr) continue;
    return Wrong(option, names, absl::StrCat("there is no group '", group, "'"));
  }
  return std::nullopt;
}

Verdict CheckReadyFd(int64_t fd) {
  if (fd == -1) return std::nullopt;
  const int flags = fd > STDIN_FILENO && fd < 1 << 20 ? fcntl(static_cast<int>(fd), F_GETFL) : -1;
  if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) return std::nullopt;
  return Wrong("ready_fd", fd, "is no open descriptor that can be written to");
}

Verdict CheckHttp(const std::string& address) {
  if (address.empty() || address == "off") return std::nullopt;
  auto parsed = ParseHttpAddress(address);
  return parsed.ok() ? std::nullopt
                     : Wrong("http", address, std::string(parsed.status().message()));
}

Verdict CheckTcp(const Options& o) {
  if (o.tcp.empty()) return std::nullopt;
  const size_t colon = o.tcp.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return Wrong("tcp", o.tcp, "is no address with a port, as 0.0.0.0:9465");
  }
  for (const auto& [option, path] : {std::pair("tls_certificate", o.tls_certificate),
                                     std::pair("tls_key", o.tls_key),
                                     std::pair("tls_roots", o.tls_roots)}) {
    if (path.empty()) return Wrong("tcp", o.tcp, absl::StrCat("needs ", option, " too"));
  }
  return std::nullopt;
}

Verdict CheckTlsUsers(const std::string& text) {
  auto users = ParseTlsUsers(text);
  return users.ok() ? std::nullopt
                    : Wrong("tls_users", text, std::string(users.status().message()));
}

}  // namespace

absl::Status CheckOptions(const Options& o, const Origins& origins) {
  constexpr int64_t kMostConnections = 40'000;  // two descriptors each, of 65,536 at most
  for (const Verdict& verdict : {
           CheckRange("socket_mode", o.socket_mode, 0, 0777),
           CheckRange("max_connections", o.max_connections, 1, kMostConnections),
           CheckRange("max_connections_per_user", o.max_connections_per_user, 1,
                      kMostConnections),
           CheckRange("max_requests_per_user", o.max_requests_per_user, 1, 1'000'000),
           CheckRange("max_studies_per_user", o.max_studies_per_user, 1, 1'000'000),
           CheckTime("idle_exit_seconds", o.idle_exit_seconds),
           CheckTime("lease_grace_seconds", o.lease_grace_seconds),
           CheckConnectionAge(o.tls_connection_seconds),
           CheckTime("keep_studies_days", o.keep_studies_days),
           CheckTime("keep_memory_days", o.keep_memory_days),
           CheckTime("keep_findings_days", o.keep_findings_days),
           CheckReadyFd(o.ready_fd),
           CheckHttp(o.http),
           CheckTcp(o),
           CheckFolder("tls_crl_directory", o.tls_crl_directory),
           CheckTlsUsers(o.tls_users),
           CheckProgram("probe_path", o.probe_path),
           CheckSocketPath("probe_socket", o.probe_socket),
           CheckFolder("profile_dir", o.profile_dir),
           CheckFolder("sysfs_root", o.sysfs_root),
           CheckGroups("admin_groups", o.admin_groups),
           CheckGroups("tune_groups", o.tune_groups),
           CheckGroups("read_groups", o.read_groups),
       }) {
    if (verdict) return absl::InvalidArgumentError(Sentence(*verdict, origins));
  }
  return absl::OkStatus();
}

const std::set<std::string>& ReloadableOptions() {
  static const std::set<std::string> kNames = {
      "log_level",         "max_connections",      "max_connections_per_user",
      "probing",           "admin_groups",         "lease_grace_seconds",
      "tune_groups",       "read_groups",          "default_role",
      "tls_users",         "keep_memory_days",     "max_requests_per_user",
      "keep_studies_days", "max_studies_per_user", "keep_findings_days"};
  return kNames;
}

}  // namespace hbmtune::daemon
