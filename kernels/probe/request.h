#pragma once

#include <optional>

#include "hbmtune/v1/probe.pb.h"

namespace hbmtune::probe {

// What a prober asks for. The files came with it over a socket and stay open for as long as the
// process lives, the device's lock among them; -1 for one that did not come.
struct Request {
  v1::ProbeRequest message;
  int result_file = -1;
  int journal_file = -1;
};

// Blocks until the request is whole; nothing if `input` (pipe, file or Unix socket) ends before, or
// what it brings is none.
std::optional<Request> ReadRequest(int input);

}  // namespace hbmtune::probe
