#include "client/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "client/interrupt.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::client {
namespace {

v1::StudyEvent StudyIn(v1::StudyState state) {
  v1::StudyEvent event;
  event.mutable_study()->set_name("studies/7");
  event.mutable_study()->set_state(state);
  return event;
}

class FollowTest : public ::testing::Test {
 protected:
  FollowTest() { NoteTwoInterrupts(); }
  ~FollowTest() override { LeaveOnInterrupt(); }

  absl::StatusOr<v1::Study> Follow(OnInterrupt on_interrupt) {
    Connection connection(socket_);
    return FollowStudy(connection, "studies/7", on_interrupt, view_);
  }

  // Tells that the study runs and holds the stream until `ended` or the client is gone.
  grpc::Status RunUntil(const std::atomic<bool>& ended, v1::StudyState last,
                        grpc::ServerContext& context, FakeDaemon::Writer& writer) {
    writer.Write(StudyIn(v1::STUDY_STATE_RUNNING));
    while (!ended && !context.IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    writer.Write(StudyIn(last));
    return grpc::Status::OK;
  }

  hbmtune::testing::TempDir folder_;
  std::string socket_ = folder_.path() + "/d.sock";
  Terminal terminal_{stdout, false, false, 80};
  ProgressView view_{terminal_, ProgressView::Plain::kNothing};
};

TEST_F(FollowTest, ReturnsTheStudyAsItEnded) {
  FakeDaemon daemon(socket_);
  daemon.watch = [&](grpc::ServerContext&, FakeDaemon::Writer& writer) {
    writer.Write(StudyIn(v1::STUDY_STATE_QUEUED));
    writer.Write(StudyIn(v1::STUDY_STATE_RUNNING));
    writer.Write(StudyIn(v1::STUDY_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  auto study = Follow(OnInterrupt::kCancelStudy);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->state(), v1::STUDY_STATE_SUCCEEDED);
}

TEST_F(FollowTest, ErrorsOfTheStreamAreReturned) {
  FakeDaemon daemon(socket_);
  daemon.watch = [](grpc::ServerContext&, FakeDaemon::Writer&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no study 7");
  };
  EXPECT_EQ(Follow(OnInterrupt::kLeave).status(), absl::NotFoundError("there is no study 7"));
}

TEST_F(FollowTest, AnInterruptionCancelsTheStudyOnceAndAwaitsItsEnd) {
  FakeDaemon daemon(socket_);
  std::atomic<bool> ended = false;
  std::atomic<int> cancels = 0;
  daemon.watch = [&](grpc::ServerContext& context, FakeDaemon::Writer& writer) {
    std::raise(SIGINT);
    return RunUntil(ended, v1::STUDY_STATE_CANCELLED, context, writer);
  };
  daemon.cancel = [&](v1::Study& study) {
    ++cancels;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the trial is being stopped
    ended = true;
    study = StudyIn(v1::STUDY_STATE_CANCELLED).study();
    return grpc::Status::OK;
  };
  auto study = Follow(OnInterrupt::kCancelStudy);
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->state(), v1::STUDY_STATE_CANCELLED);
  EXPECT_EQ(cancels, 1);
}

TEST_F(FollowTest, TwoInterruptionsAtOnceLeaveWhenTheCancelHasBeenSent) {
  FakeDaemon daemon(socket_);
  std::atomic<bool> ended = false;
  std::atomic<int> cancels = 0;
  daemon.watch = [&](grpc::ServerContext& context, FakeDaemon::Writer& writer) {
    std::raise(SIGINT);
    std::raise(SIGINT);
    return RunUntil(ended, v1::STUDY_STATE_RUNNING, context, writer);
  };
  daemon.cancel = [&](v1::Study&) {
    ++cancels;
    while (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status::OK;
  };
  EXPECT_EQ(Follow(OnInterrupt::kCancelStudy).status(),
            absl::AbortedError("interrupted; the study is being cancelled"));
  LeaveOnInterrupt();  // no alarm any more
  EXPECT_EQ(cancels, 1);
  ended = true;
}

TEST_F(FollowTest, AnInterruptionOfAWatcherLeavesTheStudyAlone) {
  FakeDaemon daemon(socket_);
  std::atomic<bool> never = false;
  std::atomic<int> cancels = 0;
  daemon.watch = [&](grpc::ServerContext& context, FakeDaemon::Writer& writer) {
    std::raise(SIGINT);
    return RunUntil(never, v1::STUDY_STATE_RUNNING, context, writer);
  };
  daemon.cancel = [&](v1::Study&) {
    ++cancels;
    return grpc::Status::OK;
  };
  EXPECT_EQ(Follow(OnInterrupt::kLeave).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(cancels, 0);
}

TEST_F(FollowTest, ADaemonThatRestartsIsAwaited) {
  auto first = std::make_unique<FakeDaemon>(socket_);
  std::atomic<bool> watched = false;
  first->watch = [&](grpc::ServerContext& context, FakeDaemon::Writer& writer) {
    writer.Write(StudyIn(v1::STUDY_STATE_RUNNING));
    watched = true;
    while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  };
  absl::StatusOr<v1::Study> study;
  std::thread follower([&] { study = Follow(OnInterrupt::kCancelStudy); });
  while (!watched) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  first.reset();
  FakeDaemon second(socket_);
  second.watch = [](grpc::ServerContext&, FakeDaemon::Writer& writer) {
    writer.Write(StudyIn(v1::STUDY_STATE_SUCCEEDED));
    return grpc::Status::OK;
  };
  follower.join();
  ASSERT_TRUE(study.ok()) << study.status();
  EXPECT_EQ(study->state(), v1::STUDY_STATE_SUCCEEDED);
}

}  // namespace
}  // namespace hbmtune::client
