#pragma once

#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "daemon/base/log.h"
#include "daemon/leases/arbiter.h"
#include "daemon/services/access.h"
#include "kernels/core/visit.h"

template <>
struct hbmtune::EnumNames<hbmtune::daemon::ProbingPolicy> {
  static constexpr std::array<std::string_view, 3> kNames = {"allocation", "idle", "off"};
};

namespace hbmtune::daemon {

// Where figures of GPUs come from: sysfs alone, or the ROCm SMI library too for what sysfs lacks;
// kAuto is silent about a library that is not there.
enum class TelemetrySource : uint8_t { kAuto, kSysfs, kRocmSmi };
enum class CompatMetrics : uint8_t { kNone, kDme };

}  // namespace hbmtune::daemon

template <>
struct hbmtune::EnumNames<hbmtune::daemon::TelemetrySource> {
  static constexpr std::array<std::string_view, 3> kNames = {"auto", "sysfs", "rocm-smi"};
};
template <>
struct hbmtune::EnumNames<hbmtune::daemon::CompatMetrics> {
  static constexpr std::array<std::string_view, 2> kNames = {"none", "dme"};
};

namespace hbmtune::daemon {

// How the daemon runs. Each field is a key of the TOML file and a flag (with dashes); a flag goes
// before the file. Empty paths are filled in by FillDefaults.
struct Options {
  std::string state_dir;
  std::string socket;
  int64_t socket_mode = 0600;
  bool private_daemon = false;
  double idle_exit_seconds = 5;
  int64_t ready_fd = -1;
  std::string http;
  std::string probe_path;
  std::string probe_socket;
  std::string lock_dir;
  std::string node_socket;
  std::string profile_dir;
  std::string probe_journal;
  LogFormat log_format = LogFormat::kLogfmt;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;
  int64_t max_connections = 1024;
  int64_t max_connections_per_user = 256;
  ProbingPolicy probing = ProbingPolicy::kAllocation;
  double lease_grace_seconds = 300;
  std::string sysfs_root = "/sys";
  TelemetrySource telemetry = TelemetrySource::kAuto;
  CompatMetrics compat_metrics = CompatMetrics::kNone;
  std::string admin_groups;
  std::string tune_groups;
  std::string read_groups;
  Role default_role = Role::kTune;
  std::string tcp;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_roots;
  std::string tls_crl_directory;
  std::string tls_users;
  double tls_connection_seconds = 3600;
  int64_t max_requests_per_user = 1000;
  int64_t max_studies_per_user = 100;
  double keep_studies_days = 0;
  double keep_memory_days = 30;
  double keep_findings_days = 90;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"state_dir", "folder of the database and the locks"}, self.state_dir);
    v(Field{"socket", "path of the Unix socket that clients connect to"}, self.socket);
    v(Field{"socket_mode", "permissions of the socket, as a number (0660 is 432)"},
      self.socket_mode);
    v(Field{"private", "serve one user's own runs and leave after the last client"},
      self.private_daemon);
    v(Field{"idle_exit_seconds", "with private: time without a client before leaving"},
      self.idle_exit_seconds);
    v(Field{"ready_fd", "descriptor to write 'ready PATH' to once clients can connect"},
      self.ready_fd);
    v(Field{"http", "address of /metrics and the status page, as 127.0.0.1:9464; off for none"},
      self.http);
    v(Field{"probe_path", "the hbmtune-probe to run"}, self.probe_path);
    v(Field{"probe_socket", "the socket of hbmtune-probe.socket: probes run in a unit of their "
                            "own, not as children"},
      self.probe_socket);
    v(Field{"lock_dir", "folder of the devices' locks, shared by all daemons of the node"},
      self.lock_dir);
    v(Field{"node_socket", "with private: the socket of the node's daemon, which is asked for a "
                           "device before it is probed"},
      self.node_socket);
    v(Field{"profile_dir", "folder of device profiles that were calibrated here"},
      self.profile_dir);
    v(Field{"probe_journal", "file to which every probe appends when it starts and ends"},
      self.probe_journal);
    v(Field{"log_format", "logfmt or json"}, self.log_format);
    v(Field{"log_level", "debug, info, warning or error"}, self.log_level);
    v(Field{"log_file", "file to append the log to, instead of stderr"}, self.log_file);
    v(Field{"max_connections", "most connections at once"}, self.max_connections);
    v(Field{"max_connections_per_user", "most connections of one user at once"},
      self.max_connections_per_user);
    v(Field{"probing", "when GPUs are probed: allocation (inside a job's lease), idle or off"},
      self.probing);
    v(Field{"lease_grace_seconds", "a lease ends so long after its job's time limit"},
      self.lease_grace_seconds);
    v(Field{"sysfs_root", "where the kernel shows the GPUs"}, self.sysfs_root);
    v(Field{"telemetry", "figures of GPUs: auto, sysfs or rocm-smi"}, self.telemetry);
    v(Field{"compat_metrics", "none, or dme: also the names of AMD's device-metrics-exporter"},
      self.compat_metrics);
    VisitAccess(self, v);
    v(Field{"keep_studies_days", "studies go so long after their end, with their trials; 0: never"},
      self.keep_studies_days);
    v(Field{"keep_memory_days", "the minutes of used memory of a GPU go so late; 0: never"},
      self.keep_memory_days);
    v(Field{"keep_findings_days", "findings of the memory monitor go so late; 0: never"},
      self.keep_findings_days);
  }

 private:
  // Who may do what, and how much of it.
  template <class Self, class V>
  static void VisitAccess(Self& self, V& v) {
    v(Field{"admin_groups", "groups whose users may do everything, separated by commas"},
      self.admin_groups);
    v(Field{"tune_groups", "groups whose users may run studies and take leases"},
      self.tune_groups);
    v(Field{"read_groups", "groups whose users may look"}, self.read_groups);
    v(Field{"default_role", "role of everybody else who can open the socket: none, read or tune"},
      self.default_role);
    v(Field{"tcp", "address to serve with mutual TLS besides, as 0.0.0.0:9465; none without"},
      self.tcp);
    v(Field{"tls_certificate", "PEM file: the daemon's certificate and what leads to its root"},
      self.tls_certificate);
    v(Field{"tls_key", "PEM file: its key"}, self.tls_key);
    v(Field{"tls_roots", "PEM file: the roots that clients' certificates lead to"},
      self.tls_roots);
    v(Field{"tls_crl_directory", "folder of revocation lists, named by openssl rehash"},
      self.tls_crl_directory);
    v(Field{"tls_users", "who is who over TCP: NAME=USER, separated by commas; NAME is a subject "
                         "alternative name of the certificate, USER one of this node"},
      self.tls_users);
    v(Field{"tls_connection_seconds", "a connection over TCP ends so long after it was made, and "
                                      "with it what its certificate was good for"},
      self.tls_connection_seconds);
    v(Field{"max_requests_per_user", "most requests a second of one user who is no admin; twice as "
                                     "many at once"},
      self.max_requests_per_user);
    v(Field{"max_studies_per_user", "most studies of one user that wait or run"},
      self.max_studies_per_user);
  }
};

// Flags and the file that --config names (default: /etc/hbmtune/hbmtuned.toml if it is there, none
// with --private), defaults filled in. INVALID_ARGUMENT is a usage error. When the flags ask for
// help or the version, it is printed and the answer is CANCELLED.
// `again`: read for a reload, when the descriptor of --ready-fd is long closed.
absl::StatusOr<Options> ParseOptions(int argc, const char* const* argv, bool again = false);

// Where each setting that a file gave stands in it, by its name: "/etc/hbmtune/hbmtuned.toml:12".
using Origins = std::map<std::string, std::string>;

// What cannot be, as one sentence (INVALID_ARGUMENT) that names the flag and its value, or of one
// with an origin the place, the setting and its value. For options as they were given, before
// FillDefaults: what is empty then is not looked at.
absl::Status CheckOptions(const Options& options, const Origins& origins = {});

// Names of the settings that a running daemon takes over from a changed file (SIGHUP).
const std::set<std::string>& ReloadableOptions();

// TOML text laid over `options`; `origins` says where each setting stands. Errors name the file,
// the line and the setting.
absl::Status ApplyToml(const std::string& text, const std::string& file_name, Options& options,
                       Origins& origins);

// systemd's $STATE_DIRECTORY and $RUNTIME_DIRECTORY, else /var/lib and /run for root, else the
// XDG folders of the user. The probe is looked for beside this program.
void FillDefaults(Options& options);

}  // namespace hbmtune::daemon
