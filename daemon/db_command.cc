#include "daemon/db_command.h"

#include <absl/status/status.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "daemon/options.h"
#include "daemon/store/maintenance.h"

namespace hbmtune::daemon {
namespace {

int Told(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "hbmtuned: " << status.message() << "\n";
  return 1;
}

int Check(const std::string& path) {
  auto wrong = CheckFile(path);
  if (!wrong.ok()) return Told(wrong.status());
  for (const std::string& line : *wrong) std::cerr << "hbmtuned: " << path << ": " << line << "\n";
  if (wrong->empty()) std::cout << path << ": ok\n";
  return wrong->empty() ? 0 : 1;
}

}  // namespace

int DbCommand(int argc, const char* const* argv) {
  CLI::App app("Looks after the database of hbmtuned, which may run meanwhile.", "hbmtuned db");
  std::string target;
  Options options;
  app.require_subcommand(1);
  app.fallthrough();  // --state-dir may stand after the verb; inherited by the verbs below
  app.add_option("--state-dir", options.state_dir, "the daemon's folder; default: as hbmtuned's");
  CLI::App* backup = app.add_subcommand("backup", "copy the database of this moment into a file");
  backup->add_option("FILE", target, "the copy; must not be there yet")->required();
  CLI::App* check = app.add_subcommand("check", "say what is wrong with it; exit status 1 then");
  app.add_subcommand("export", "print each study with its trials as a line of JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, std::cout, std::cerr);
    std::cerr << "hbmtuned db: " << error.what() << "\n";
    return 2;
  }
  FillDefaults(options);
  const std::string path = options.state_dir + "/hbmtune.db";
  if (backup->parsed()) return Told(BackUp(path, target));
  if (check->parsed()) return Check(path);
  return Told(ExportTo(path, std::cout));
}

}  // namespace hbmtune::daemon
