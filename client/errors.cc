#include "client/errors.h"

#include <cstdio>
#include <string>
#include <string_view>

#include "client/output.h"
#include "client/screen.h"
#include "client/terminal.h"
#include "client/text.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace hbmtune::client {
namespace {

// gRPC's own words, before what the system said.
constexpr std::string_view kNoConnection =
    "failed to connect to all addresses; last error: UNKNOWN: ";

std::string Violations(const google::rpc::BadRequest& request) {
  std::string text;
  for (const auto& violation : request.field_violations()) {
    if (!text.empty()) text += "; ";
    text += violation.description();
  }
  return text;
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string sentence = status.error_message();
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      google::rpc::BadRequest request;
      if (!detail.UnpackTo(&request) || request.field_violations().empty()) continue;
      sentence = Violations(request);
    }
  }
  // So a server that shuts down ends the calls that it has, and refuses new ones.
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError("the daemon left before it had answered");
  }
  if (sentence.starts_with(kNoConnection)) {
    sentence.replace(0, kNoConnection.size(), "the daemon is gone: ");
  }
  return {static_cast<absl::StatusCode>(status.error_code()), sentence};
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange: return kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return kUnreachable;
    case absl::StatusCode::kAborted: return kInterrupted;
    default: return kFailed;
  }
}

ExitCode Report(const absl::Status& status) {
  // What a message quotes (a config.json, a recording) must not steer the terminal.
  const std::string sentence = "hbmtune: " + Harmless(std::string(status.message()));
  const Terminal terminal(stderr);
  if (!terminal.interactive()) {
    WriteOut(stderr, sentence + "\n");
  } else {
    for (const std::string& line : Wrap(sentence, terminal.columns())) {
      WriteOut(stderr, line + "\n");
    }
  }
  return ExitCodeOf(status);
}

}  // namespace hbmtune::client
