#include "daemon/server_main.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include "daemon/db_command.h"
#include "daemon/net/unix_socket.h"
#include "daemon/options.h"
#include "daemon/ready.h"
#include "daemon/server.h"
#include "daemon/service_manager.h"
#include "daemon/signals.h"
#include "daemon/store/open.h"

namespace hbmtune::daemon {
namespace {

// A private daemon waits this long for one that is just leaving.
constexpr absl::Duration kPrivatePatience = absl::Seconds(5);

// A closed standard descriptor would be taken by the next file that is opened, and then written to.
void KeepStandardDescriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

// glibc keeps an arena for every thread, and what is freed in one is not given back while anything
// above it lives: a study's estimates, traces of some 100 KiB, left 94 MiB resident after 1,200
// trials, and 61 MiB with two arenas and blocks from 128 KiB on mapped by themselves (2 cores).
void KeepMemorySmall() {
  constexpr int kArenas = 2;
  constexpr int kMapFromBytes = 128 << 10;  // set, it does not adapt
  mallopt(M_ARENA_MAX, kArenas);
  mallopt(M_MMAP_THRESHOLD, kMapFromBytes);
  mallopt(M_TRIM_THRESHOLD, kMapFromBytes);
}

// One daemon a state directory. ALREADY_EXISTS: a private one serves it already, and can be joined.
absl::StatusOr<LockFile> LockState(const Options& options) {
  const std::string path = options.state_dir + "/lock";
  const absl::Time deadline = absl::Now() + kPrivatePatience;
  for (;;) {
    auto lock = LockFile::Acquire(path, absl::Milliseconds(options.private_daemon ? 50 : 0));
    if (lock.ok() || !absl::IsFailedPrecondition(lock.status())) return lock;
    if (options.private_daemon && ConnectUnix(options.socket).ok()) {
      return absl::AlreadyExistsError("a private hbmtuned serves already");
    }
    if (!options.private_daemon) {
      return absl::FailedPreconditionError(
          absl::StrCat("another hbmtuned (process ", ReadLockPid(path),
                       ") uses the state directory ", options.state_dir,
                       ": stop it, or choose another --state-dir"));
    }
    if (absl::Now() > deadline) {  // nobody knows that he started it: --local did
      const int64_t pid = ReadLockPid(path);
      return absl::FailedPreconditionError(absl::StrCat(
          "the private hbmtuned (process ", pid, ") of ", options.state_dir,
          " takes no connection and does not leave: end it with kill ", pid,
          ", or where that does not help with kill -9 ", pid));
    }
  }
}

void WarnIf(const absl::Status& failed, const Log& log) {
  if (!failed.ok()) log.Warning("the service manager is not told", {{"error", failed}});
}

// `read_options` reads them again, for SIGHUP.
absl::Status Serve(const Options& options, ReadyNote& note, const ServiceManager& manager,
                   const std::function<absl::StatusOr<Options>()>& read_options) {
  for (const std::string& directory : {options.state_dir, options.lock_dir}) {
    if (absl::Status status = EnsureDirectory(directory); !status.ok()) return status;
  }
  if (options.private_daemon) setsid();  // the starter's Ctrl-C is not ours
  auto lock = LockState(options);
  if (absl::IsAlreadyExists(lock.status())) {
    note.Ready(options.socket, 0);
    return absl::OkStatus();
  }
  if (!lock.ok()) return lock.status();
  Signals signals;  // before any thread
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is a full disk, not the end
  const SystemClock clock;
  const Log log(options.log_format, options.log_level, options.log_file);
  auto server = Server::Start(options, *std::move(lock), clock, log);
  if (!server.ok()) return server.status();
  note.Ready((*server)->socket_path(), (*server)->http_port());
  log.Info("serves", {{"socket", (*server)->socket_path()},
                      {"http_port", (*server)->http_port()},
                      {"state_dir", options.state_dir},
                      {"version", HBMTUNE_VERSION}});
  WarnIf(manager.Ready(), log);
  for (;;) {
    auto signal = signals.Wait(absl::Seconds(1));
    if (signal == SIGHUP) {
      auto changed = read_options();
      if (changed.ok()) (*server)->Reload(*changed);
      if (!changed.ok()) log.Error("nothing is reloaded", {{"error", changed.status()}});
    }
    if (signal == SIGTERM || signal == SIGINT) break;
    (*server)->Tick();
    if ((*server)->ShouldLeave()) break;
  }
  log.Info("leaves");
  WarnIf(manager.Stopping(), log);
  (*server)->Drain();
  server->reset();
  log.Info("left");
  return absl::OkStatus();
}

}  // namespace

int ServerMain(int argc, const char* const* argv) {
  KeepStandardDescriptors();
  KeepMemorySmall();
  if (argc > 1 && std::string_view(argv[1]) == "db") return DbCommand(argc - 1, argv + 1);
  auto options = ParseOptions(argc, argv);
  if (absl::IsCancelled(options.status())) return 0;
  if (!options.ok()) {
    std::cerr << "hbmtuned: " << options.status().message() << "\n";
    return 2;
  }
  // Probes inherit it: libgomp's threads spin at barriers, which hurts on a busy machine. Single
  // runs at load 7, so a rough ratio: 8.2 s a step, and 0.34 s with OMP_WAIT_POLICY=passive.
  setenv("GOMP_SPINCOUNT", "1000", 0);
  ReadyNote note(static_cast<int>(options->ready_fd));
  ServiceManager manager = ServiceManager::FromEnvironment();
  // A private one may have been started within somebody's service, which it does not speak for.
  if (options->private_daemon) manager = ServiceManager("");
  absl::Status status =
      Serve(*options, note, manager, [&] { return ParseOptions(argc, argv, true); });
  if (status.ok()) return 0;
  std::cerr << "hbmtuned: " << status.message() << "\n";
  note.Failed(status);
  return 1;
}

}  // namespace hbmtune::daemon
