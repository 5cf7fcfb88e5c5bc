#include "client/errors.h"

#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace hbmtune::client {
namespace {

grpc::Status WithViolations(const std::vector<std::string>& descriptions) {
  google::rpc::BadRequest request;
  for (const std::string& description : descriptions) {
    request.add_field_violations()->set_description(description);
  }
  google::rpc::Status details;
  details.add_details()->PackFrom(request);
  return {grpc::StatusCode::INVALID_ARGUMENT, "two fields are wrong",
          details.SerializeAsString()};
}

TEST(Errors, ViolationsBecomeOneSentence) {
  absl::Status status = FromGrpc(WithViolations({"seq_len must be over 0", "no such device"}));
  EXPECT_EQ(status.message(), "seq_len must be over 0; no such device");
  EXPECT_EQ(ExitCodeOf(status), kUsage);
}

TEST(Errors, WithoutDetailsTheMessageIsTheSentence) {
  EXPECT_EQ(FromGrpc({grpc::StatusCode::NOT_FOUND, "there is no study 9"}).message(),
            "there is no study 9");
  EXPECT_EQ(FromGrpc({grpc::StatusCode::INTERNAL, "broken", "no protobuf at all"}).message(),
            "broken");
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(Errors, ADaemonThatLeavesOrIsGoneIsCalledThat) {
  absl::Status left = FromGrpc({grpc::StatusCode::CANCELLED, "CANCELLED"});
  EXPECT_EQ(left, absl::UnavailableError("the daemon left before it had answered"));
  absl::Status gone = FromGrpc({grpc::StatusCode::UNAVAILABLE,
                                "failed to connect to all addresses; last error: UNKNOWN: "
                                "unix:/run/d.sock: Connection refused"});
  EXPECT_EQ(gone, absl::UnavailableError("the daemon is gone: unix:/run/d.sock: Connection "
                                         "refused"));
}

TEST(Errors, CodesHaveTheirExitCodes) {
  auto code = [](grpc::StatusCode c) { return ExitCodeOf(FromGrpc({c, "x"})); };
  EXPECT_EQ(code(grpc::StatusCode::OK), kDone);
  EXPECT_EQ(code(grpc::StatusCode::INVALID_ARGUMENT), kUsage);
  EXPECT_EQ(code(grpc::StatusCode::NOT_FOUND), kUsage);
  EXPECT_EQ(code(grpc::StatusCode::UNAVAILABLE), kUnreachable);
  EXPECT_EQ(code(grpc::StatusCode::DEADLINE_EXCEEDED), kUnreachable);
  EXPECT_EQ(code(grpc::StatusCode::FAILED_PRECONDITION), kFailed);
  EXPECT_EQ(code(grpc::StatusCode::RESOURCE_EXHAUSTED), kFailed);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("x")), kInterrupted);
}

TEST(Errors, AreReportedOnStderr) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Report(absl::UnavailableError("no daemon")), kUnreachable);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "hbmtune: no daemon\n");
}

TEST(Errors, LeaveTheTerminalAlone) {
  ::testing::internal::CaptureStderr();
  Report(absl::InvalidArgumentError("the type 'a\x1b[2J\x7f' of “x” is unknown"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "hbmtune: the type 'a?[2J?' of “x” is unknown\n");
}

}  // namespace
}  // namespace hbmtune::client
