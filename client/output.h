#pragma once

#include <absl/status/status.h>

#include <cstdio>
#include <string_view>

// Where every verb's text goes out. Not for several threads at once.
namespace hbmtune::client {

// Opens what a caller closed of stdin, stdout and stderr (`>&-`), so that no socket takes its
// number and receives the output; a stdout that was closed stays one that cannot be written.
void OpenStandardFiles();

// Writes the text out at once. The first failure of stdout is kept for OutputStatus.
void WriteOut(std::FILE* out, std::string_view text);

// INTERNAL "cannot write the output: …" if some of stdout could not be written. A reader that
// has left (`| head -1`) is no failure.
absl::Status OutputStatus();

}  // namespace hbmtune::client
