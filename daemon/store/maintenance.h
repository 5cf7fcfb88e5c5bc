#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <iosfwd>
#include <string>
#include <vector>

// What an admin does with the database file; a daemon may use it meanwhile. Errors are sentences:
// NOT_FOUND without a file, FAILED_PRECONDITION if the target is there, DATA_LOSS if it is corrupt.
namespace hbmtune::daemon {

// A whole copy of the moment, by SQLite's online backup: written beside `target` (mode 0600),
// synced, renamed.
absl::Status BackUp(const std::string& path, const std::string& target);

// SQLite's integrity check, references between tables, and whether the studies' counts are those
// of their trials. What is wrong, in lines; empty if all is well.
absl::StatusOr<std::vector<std::string>> CheckFile(const std::string& path);

// Each study as a line of JSON: the columns by their names, NULLs left out, with `pins` and
// `trials`.
absl::Status ExportTo(const std::string& path, std::ostream& out);

}  // namespace hbmtune::daemon
