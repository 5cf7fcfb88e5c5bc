#include "client/connection.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/local_daemon.h"
#include "client/socket_path.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::client {
namespace {

using ::testing::HasSubstr;

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    unsetenv("HBMTUNE_SOCKET");
    setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
  }

  absl::StatusOr<v1::Study> GetStudy(const ConnectionFlags& flags) {
    auto connection = Connect(flags);
    if (!connection.ok()) return connection.status();
    v1::GetStudyRequest request;
    request.set_name("7");
    return Call((*connection)->tuning(), &v1::Tuning::StubInterface::GetStudy, request);
  }

  static grpc::Status Answer(const v1::GetStudyRequest& request, v1::Study& study) {
    study.set_name("studies/" + request.name());
    return grpc::Status::OK;
  }

  hbmtune::testing::TempDir folder_;
};

TEST_F(ConnectionTest, CallsTheDaemonThatTheFlagNames) {
  std::string socket = folder_.path() + "/d.sock";
  FakeDaemon daemon(socket);
  daemon.get_study = Answer;
  EXPECT_EQ(GetStudy({socket, false})->name(), "studies/7");
}

TEST_F(ConnectionTest, TheEnvironmentNamesOneToo) {
  std::string socket = folder_.path() + "/e.sock";
  FakeDaemon daemon(socket);
  daemon.get_study = Answer;
  setenv("HBMTUNE_SOCKET", socket.c_str(), 1);
  EXPECT_EQ(GetStudy({})->name(), "studies/7");
  unsetenv("HBMTUNE_SOCKET");
}

TEST_F(ConnectionTest, APathTooLongForASocketAddressWorks) {
  std::string deep = folder_.path() + "/" + std::string(100, 'd');
  std::filesystem::create_directories(deep);
  std::string socket = deep + "/hbmtuned.sock";
  ASSERT_GT(socket.size(), kMostSocketPathBytes);
  FakeDaemon daemon(socket);
  daemon.get_study = Answer;
  EXPECT_EQ(GetStudy({socket, false})->name(), "studies/7");
}

TEST_F(ConnectionTest, ErrorsOfTheDaemonKeepTheirCodeAndSentence) {
  std::string socket = folder_.path() + "/d.sock";
  FakeDaemon daemon(socket);
  daemon.get_study = [](const v1::GetStudyRequest&, v1::Study&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no study 7");
  };
  absl::Status status = GetStudy({socket, false}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "there is no study 7");
}

TEST(ConnectionFlags, SayWhatWasGivenForTheNextCommand) {
  ConnectionFlags flags;
  EXPECT_EQ(flags.Words(), "");
  flags.local = true;
  flags.socket = "/tmp/my socket";
  EXPECT_EQ(flags.Words(), " --local --socket '/tmp/my socket'");
  flags = {};
  flags.remote = {"gpu7:9465", {"ca.crt", "me.crt", "me.key"}};
  EXPECT_EQ(flags.Words(),
            " --address gpu7:9465 --tls-ca ca.crt --tls-cert me.crt --tls-key me.key");
}

TEST_F(ConnectionTest, ASocketThatNobodyHoldsIsUnavailable) {
  std::string socket = folder_.path() + "/d.sock";
  EXPECT_EQ(GetStudy({socket, false}).status().message(),
            "no daemon at " + socket + ": there is no such socket");
  std::ofstream(socket) << "a file";
  absl::Status status = GetStudy({socket, false}).status();
  EXPECT_EQ(status.message(), "no daemon at " + socket + ": nobody listens there");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, WithoutAnyDaemonItSaysHowToGetOne) {
  if (Probe(kSystemSocket).ok()) return;  // this machine runs the system's daemon
  absl::Status status = GetStudy({}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("add --local for a private daemon"));
}

TEST_F(ConnectionTest, APrivateDaemonThatRunsIsJoinedWithoutStartingOne) {
  setenv("HBMTUNED", "/nowhere/hbmtuned", 1);
  std::filesystem::create_directories(folder_.path() + "/hbmtune");
  FakeDaemon daemon(folder_.path() + "/hbmtune/private.sock");
  daemon.get_study = Answer;
  EXPECT_EQ(GetStudy({"", true})->name(), "studies/7");
  unsetenv("HBMTUNED");
}

TEST_F(ConnectionTest, APrivateDaemonThatCannotStartSaysWhy) {
  setenv("HBMTUNED", "/nowhere/hbmtuned", 1);
  EXPECT_EQ(GetStudy({"", true}).status().message(),
            "cannot start /nowhere/hbmtuned: No such file or directory");
  setenv("HBMTUNED", "/bin/false", 1);
  EXPECT_EQ(GetStudy({"", true}).status().message(),
            "the private daemon ended before it was ready");
  unsetenv("HBMTUNED");
}

absl::StatusOr<std::string> Read(const std::string& text) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  FileDescriptor read_end(ends[0]);
  {
    FileDescriptor write_end(ends[1]);
    EXPECT_EQ(write(write_end.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  return ReadReadyNote(read_end);
}

TEST(ReadyNote, NamesTheSocketOrTheReason) {
  EXPECT_EQ(*Read("ready /run/x.sock\nhttp 127.0.0.1:80\n"), "/run/x.sock");
  absl::Status status = Read("error the disk is full\n").status();
  EXPECT_EQ(status.message(), "the private daemon did not start: the disk is full");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read("").status().message(), "the private daemon ended before it was ready");
}

}  // namespace
}  // namespace hbmtune::client
