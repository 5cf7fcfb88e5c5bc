#include "kernels/probe/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace hbmtune::probe {

namespace {

// A rename is on disk when its folder is.
void SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

bool Put(int file, const std::string& bytes) {
  return file >= 0 &&
         write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

void Complain(const std::string& what) {
  std::cerr << "hbmtune-probe: cannot write the " << what << ": " << std::strerror(errno) << '\n';
}

}  // namespace

void AppendLine(const std::string& path, const std::string& line) {
  if (path.empty()) return;
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (!Put(file, line + "\n")) Complain("journal " + path);
  if (file >= 0) close(file);
}

void AppendLine(int file, const std::string& line) {
  if (file >= 0 && !Put(file, line + "\n")) Complain("journal");
}

void WriteWhole(const std::string& path, const std::string& bytes) {
  if (path.empty()) return;
  const std::string beside = path + ".new";
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool whole = Put(file, bytes) && fsync(file) == 0;
  if (file >= 0) close(file);
  if (whole && std::rename(beside.c_str(), path.c_str()) == 0) return SyncFolderOf(path);
  Complain("result " + path);
}

void WriteWhole(int file, const std::string& bytes) {
  if (file >= 0 && !(Put(file, bytes) && fsync(file) == 0)) Complain("result");
}

}  // namespace hbmtune::probe
