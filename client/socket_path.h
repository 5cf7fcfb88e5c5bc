#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>

#include "client/file_descriptor.h"

namespace hbmtune::client {

inline constexpr const char* kSystemSocket = "/run/hbmtune/hbmtuned.sock";

// Longest path that a Unix socket's address holds (108 bytes with the closing zero).
inline constexpr size_t kMostSocketPathBytes = 107;

// The path to connect to: itself, or one through `folder`, which is opened for it, when it is too
// long. The path is returned as it is when its folder cannot be opened.
std::string ShortSocketPath(const std::string& path, FileDescriptor& folder);

// OK if something listens there; otherwise UNAVAILABLE with what the system said.
absl::Status Probe(const std::string& path);

// The process that listens there, whether it answers or not; 0 if that is not known.
int64_t ListenerOf(const std::string& path);

}  // namespace hbmtune::client
