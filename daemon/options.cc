#include "daemon/options.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>
#include <toml++/toml.h>

#include "kernels/core/hash.h"
#include "kernels/core/json.h"

namespace hbmtune::daemon {
namespace {

constexpr char kDefaultConfig[] = "/etc/hbmtune/hbmtuned.toml";
constexpr char kDefaultHttp[] = "127.0.0.1:9464";
// Every daemon of the node, private ones too, finds the locks here; deploy/systemd makes it.
constexpr char kNodeLockDir[] = "/run/lock/hbmtune";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Json TomlToJson(const toml::node& node) {
  if (const auto* table = node.as_table()) {
    Json json = Json::object();
    for (const auto& [key, value] : *table) json[std::string(key.str())] = TomlToJson(value);
    return json;
  }
  if (auto value = node.as_boolean()) return value->get();
  if (auto value = node.as_integer()) return value->get();
  if (auto value = node.as_floating_point()) return value->get();
  if (auto value = node.as_string()) return value->get();
  return nullptr;  // lists and dates: no option is one, so FromJson names the key
}

std::string FlagOf(std::string_view setting) {
  return "--" + absl::StrReplaceAll(std::string(setting), {{"_", "-"}});
}

// For the right column of --help, which begins after 30: 80 in all.
std::string Wrapped(std::string_view text) {
  constexpr size_t kColumns = 50;
  std::string wrapped;
  size_t width = 0;
  const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
  for (const std::string& word : words) {
    const bool fits = width + 1 + word.size() <= kColumns;
    if (width > 0) wrapped += fits ? ' ' : '\n';
    width = word.size() + (width > 0 && fits ? width + 1 : 0);
    wrapped += word;
  }
  return wrapped;
}

// Adds a flag for each field; what is given lands in `given`, as JSON.
struct FlagMaker {
  CLI::App& app;
  Json& given;
  template <class T>
  void operator()(const Field& field, T& value) {
    const std::string key(field.name);
    const std::string flag = FlagOf(key);
    const std::string help = Wrapped(field.help);
    if constexpr (std::is_same_v<T, bool>) {
      app.add_flag_callback(flag, [this, key] { given[key] = true; }, help);
    } else if constexpr (std::is_arithmetic_v<T>) {
      app.add_option_function<T>(flag, [this, key](const T& x) { given[key] = x; }, help);
    } else {
      app.add_option_function<std::string>(
          flag, [this, key](const std::string& x) { given[key] = x; }, help);
    }
    static_cast<void>(value);
  }
};

// One setting; why it cannot be that, without its name.
absl::Status Apply(const std::string& setting, const Json& value, Options& options) {
  Json one = Json::object();
  one[setting] = value;
  try {
    FromJson(one, options);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StripPrefix(error.what(), setting + ": "));
  }
  return absl::OkStatus();
}

absl::Status ApplyFlags(const Json& given, Options& options, Origins& origins) {
  for (const auto& [setting, value] : given.items()) {
    if (absl::Status status = Apply(setting, value, options); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(FlagOf(setting), ": ", status.message()));
    }
    origins.erase(setting);
  }
  return absl::OkStatus();
}

absl::Status ApplyFile(const std::string& path, Options& options, Origins& origins) {
  // A folder would read as an empty file, that is, as the defaults; a pipe would hold up a reload.
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  std::ifstream file;
  if (regular) file.open(path);
  if (!file.is_open()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read the config ", path, ": ",
                                                   regular ? "may not be opened"
                                                   : error ? error.message() : "no regular file"));
  }
  std::string text;
  try {
    text.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // a disk that fails is not the end of the file
    return absl::InvalidArgumentError(absl::StrCat("cannot read the config ", path,
                                                   ": reading it failed"));
  }
  return ApplyToml(text, path, options, origins);
}

std::string UserStateDir() {
  std::string base = Environment("XDG_STATE_HOME");
  if (base.empty()) base = Environment("HOME") + "/.local/state";
  return base + "/hbmtune";
}

std::string DefaultSocketDir(const Options& options) {
  if (auto runtime = Environment("RUNTIME_DIRECTORY"); !runtime.empty()) return runtime;
  if (options.private_daemon || geteuid() != 0) {
    auto runtime = Environment("XDG_RUNTIME_DIR");
    return runtime.empty() ? options.state_dir : runtime + "/hbmtune";
  }
  return "/run/hbmtune";
}

}  // namespace

absl::Status ApplyToml(const std::string& text, const std::string& file_name, Options& options,
                       Origins& origins) {
  toml::table table;
  try {
    table = toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ":", error.source().begin.line, ": ",
                                                   std::string(error.description())));
  }
  for (const auto& [key, value] : table) {
    const std::string setting(key.str());
    const std::string place = absl::StrCat(file_name, ":", key.source().begin.line);
    if (absl::Status status = Apply(setting, TomlToJson(value), options); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": ", setting, ": ", status.message()));
    }
    origins[setting] = place;
  }
  return absl::OkStatus();
}

void FillDefaults(Options& options) {
  if (options.state_dir.empty()) options.state_dir = Environment("STATE_DIRECTORY");
  if (options.state_dir.empty()) {
    const bool system = geteuid() == 0 && !options.private_daemon;
    options.state_dir = system ? "/var/lib/hbmtune" : UserStateDir();
    // A private daemon on a socket of its own has a state of its own: one state has one daemon.
    if (options.private_daemon && !options.socket.empty()) {
      const auto socket = std::filesystem::absolute(options.socket).lexically_normal();
      options.state_dir += "/private-" + HashText(socket.string()).substr(0, 12);
    }
  }
  if (options.socket.empty()) {
    options.socket = absl::StrCat(DefaultSocketDir(options), "/",
                                  options.private_daemon ? "private.sock" : "hbmtuned.sock");
  }
  if (options.http.empty()) options.http = options.private_daemon ? "off" : kDefaultHttp;
  if (options.node_socket.empty() && options.private_daemon) {
    options.node_socket = "/run/hbmtune/hbmtuned.sock";
  }
  if (options.lock_dir.empty()) {
    const bool shared = access(kNodeLockDir, W_OK | X_OK) == 0;
    options.lock_dir = shared ? kNodeLockDir : options.state_dir;
  }
  if (options.profile_dir.empty()) {
    // Where `hbmtune calibrate` writes; private daemons of one user share it.
    const std::string base = options.private_daemon ? UserStateDir() : options.state_dir;
    options.profile_dir = base + "/profiles";
  }
  if (options.log_file.empty() && options.private_daemon) {
    options.log_file = options.state_dir + "/hbmtuned.log";
  }
  if (options.probe_path.empty()) {
    std::error_code error;
    auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    options.probe_path = (self.parent_path() / "hbmtune-probe").string();
  }
}

absl::StatusOr<Options> ParseOptions(int argc, const char* const* argv, bool again) {
  Options options;
  Origins origins;
  Json given = Json::object();
  std::string config;
  CLI::App app("hbmtuned: tunes training on this node's devices and serves what it learns.");
  app.set_version_flag("--version", "hbmtuned " HBMTUNE_VERSION);
  app.add_option("--config", config,
                 Wrapped(absl::StrCat("TOML file with these settings, dashes as underscores; "
                                      "default ", kDefaultConfig)));
  FlagMaker maker{app, given};  // the flags' callbacks keep it
  Options::Visit(options, maker);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return absl::InvalidArgumentError(error.what());
    app.exit(error, std::cout, std::cerr);
    return absl::CancelledError("done");
  }
  const bool private_daemon = given.contains("private");
  if (config.empty() && !private_daemon && std::filesystem::exists(kDefaultConfig)) {
    config = kDefaultConfig;
  }
  if (!config.empty()) {
    if (absl::Status status = ApplyFile(config, options, origins); !status.ok()) return status;
  }
  if (absl::Status status = ApplyFlags(given, options, origins); !status.ok()) return status;
  if (given.value("state_dir", "unset").empty()) {  // of a shell's empty variable, say
    return absl::InvalidArgumentError("--state-dir is empty: name a folder, or leave it out");
  }
  if (again) options.ready_fd = -1;
  if (absl::Status status = CheckOptions(options, origins); !status.ok()) return status;
  FillDefaults(options);
  return options;
}

}  // namespace hbmtune::daemon
