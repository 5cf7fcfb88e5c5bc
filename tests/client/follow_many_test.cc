#include "client/follow_many.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>

#include "client/interrupt.h"
#include "tests/client/fake_daemon.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::client {
namespace {

v1::Study StudyIn(const std::string& name, v1::StudyState state) {
  v1::Study study;
  study.set_name(name);
  study.set_state(state);
  return study;
}

class FollowManyTest : public ::testing::Test {
 protected:
  FollowManyTest() { NoteTwoInterrupts(); }
  ~FollowManyTest() override { LeaveOnInterrupt(); }

  absl::StatusOr<std::vector<v1::Study>> Follow() {
    Connection connection(socket_);
    return FollowStudies(connection,
                         {StudyIn("studies/1", v1::STUDY_STATE_QUEUED),
                          StudyIn("studies/2", v1::STUDY_STATE_QUEUED)},
                         [this](const std::vector<v1::Study>&) { ++looks_; });
  }

  hbmtune::testing::TempDir folder_;
  std::string socket_ = folder_.path() + "/d.sock";
  int looks_ = 0;
};

TEST_F(FollowManyTest, AllAreFollowedToTheirEndsInTheirOrder) {
  FakeDaemon daemon(socket_);
  std::atomic<int> asked = 0;
  daemon.get_study = [&](const v1::GetStudyRequest& request, v1::Study& study) {
    const bool first = request.name() == "studies/1";
    const bool ended = first || ++asked > 2;
    study = StudyIn(request.name(), !ended  ? v1::STUDY_STATE_RUNNING
                                    : first ? v1::STUDY_STATE_FAILED
                                            : v1::STUDY_STATE_SUCCEEDED);
    return grpc::Status::OK;
  };
  auto studies = Follow();
  ASSERT_TRUE(studies.ok()) << studies.status();
  EXPECT_EQ((*studies)[0].state(), v1::STUDY_STATE_FAILED);
  EXPECT_EQ((*studies)[1].state(), v1::STUDY_STATE_SUCCEEDED);
  EXPECT_EQ(looks_, 3);
}

TEST_F(FollowManyTest, AnInterruptionCancelsAllOfThem) {
  FakeDaemon daemon(socket_);
  std::atomic<int> cancels = 0;
  std::atomic<bool> raised = false;
  daemon.get_study = [&](const v1::GetStudyRequest& request, v1::Study& study) {
    if (!raised.exchange(true)) std::raise(SIGINT);
    const bool ended = cancels == 2;
    study = StudyIn(request.name(),
                    ended ? v1::STUDY_STATE_CANCELLED : v1::STUDY_STATE_RUNNING);
    return grpc::Status::OK;
  };
  daemon.cancel = [&](v1::Study& study) {
    ++cancels;
    study = StudyIn("studies/1", v1::STUDY_STATE_CANCELLED);
    return grpc::Status::OK;
  };
  auto studies = Follow();
  ASSERT_TRUE(studies.ok()) << studies.status();
  EXPECT_EQ((*studies)[1].state(), v1::STUDY_STATE_CANCELLED);
  EXPECT_EQ(cancels, 2);
}

TEST_F(FollowManyTest, ErrorsOfTheDaemonAreReturned) {
  FakeDaemon daemon(socket_);
  daemon.get_study = [](const v1::GetStudyRequest&, v1::Study&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no study 1");
  };
  EXPECT_EQ(Follow().status(), absl::NotFoundError("there is no study 1"));
}

}  // namespace
}  // namespace hbmtune::client
