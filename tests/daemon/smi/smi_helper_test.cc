#include "daemon/smi/smi_helper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {
namespace {

using ::testing::HasSubstr;

class SteppedClock final : public Clock {
 public:
  absl::Time Now() const override { return real_.Now(); }
  absl::Duration SinceBoot() const override { return real_.SinceBoot() + skipped; }
  std::string BootId() const override { return real_.BootId(); }
  absl::Duration skipped = absl::ZeroDuration();

 private:
  SystemClock real_;
};

// A helper that is a shell script.
class Smi : public ::testing::Test {
 protected:
  std::unique_ptr<SmiHelper> Run(const std::string& script) {
    std::string path = folder_.path() + "/smi.sh";
    std::ofstream(path) << script;
    SmiHelper::Options options;
    options.program = "/bin/sh";
    options.arguments = {path};
    options.deadline = absl::Milliseconds(500);
    return std::make_unique<SmiHelper>(clock_, options);
  }

  SteppedClock clock_;
  testing::TempDir folder_;
};

constexpr char kGood[] = R"(while read line; do
  echo '{"devices":[{"pci_address":"0000:03:00.0","energy_joules":12.5}]}'
done)";

TEST_F(Smi, AsksAgainAndAgain) {
  auto helper = Run(kGood);
  auto first = helper->Sample();
  ASSERT_TRUE(first.ok()) << first.status();
  auto pid = helper->pid();
  auto second = helper->Sample();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(helper->pid(), pid);
  EXPECT_EQ(second->at(0).pci_address, "0000:03:00.0");
  EXPECT_DOUBLE_EQ(*second->at(0).energy_joules, 12.5);
  EXPECT_FALSE(second->at(0).retired_pages);
}

TEST_F(Smi, StartsAnewAfterAStop) {
  auto helper = Run(kGood);
  ASSERT_TRUE(helper->Sample().ok());
  helper->Stop();
  EXPECT_EQ(helper->pid(), 0);
  EXPECT_TRUE(helper->Sample().ok());
}

TEST_F(Smi, EndsAHelperThatWedges) {
  auto helper = Run("sleep 1000");
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(helper->pid(), 0);
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kUnavailable);
  clock_.skipped = absl::Seconds(11);
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kDeadlineExceeded);
  clock_.skipped += absl::Seconds(11);
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kUnavailable)
      << "the pause doubled";
}

TEST_F(Smi, SurvivesAHelperThatAborts) {
  auto helper = Run("read line; kill -ABRT $$");
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(Smi, SurvivesAHelperThatIsKilled) {
  auto helper = Run(kGood);
  ASSERT_TRUE(helper->Sample().ok());
  kill(static_cast<pid_t>(helper->pid()), SIGKILL);
  EXPECT_FALSE(helper->Sample().ok());
  clock_.skipped = absl::Seconds(11);
  EXPECT_TRUE(helper->Sample().ok());
}

TEST_F(Smi, RefusesNonsense) {
  auto helper = Run("read line; echo nonsense");
  EXPECT_EQ(helper->Sample().status().code(), absl::StatusCode::kInternal);
}

TEST_F(Smi, PassesTheLibrarysSentenceOn) {
  auto helper = Run("read line; echo '{\"error\":\"no GPU\"}'");
  EXPECT_THAT(helper->Sample().status().message(), HasSubstr("no GPU"));
}

TEST_F(Smi, SaysThatTheProgramIsMissing) {
  SmiHelper::Options options;
  options.program = "/nonexistent/hbmtune-smi";
  SmiHelper helper(clock_, options);
  EXPECT_FALSE(helper.Sample().ok());
}

}  // namespace
}  // namespace hbmtune::daemon
