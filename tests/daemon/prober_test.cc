#include "daemon/prober/prober.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "daemon/base/lock_file.h"
#include "daemon/prober/event_reader.h"
#include "kernels/core/json.h"
#include "tests/support/probe_unit.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The ladder, ten times as steep.
StopLadder::Times QuickStop() {
  return {absl::Milliseconds(300), absl::Seconds(1), absl::Seconds(3)};
}

class ProberTest : public ::testing::Test {
 protected:
  Prober MakeProber(const std::string& path = FAKE_PROBE) {
    return Prober({path, dir_.path(), dir_.path() + "/journal", dir_.path(), QuickStop(), socket_},
                  clock_, log_);
  }
  // From now on probes run in a unit, started by systemd's activator.
  void StartUnit() {
    socket_ = dir_.path() + "/probe.sock";
    unit_.emplace(socket_, FAKE_PROBE);
  }
  ProbeTask Task(const std::string& behaviour, int64_t micro_batch = 4) {
    ProbeTask task;
    task.trial = "studies/1/trials/1";
    task.workload.model.name = behaviour;
    task.config.micro_batch = micro_batch;
    task.device = "host";
    task.memory_bytes = 20'000;
    task.deadline = absl::Seconds(20);
    return task;
  }
  Measurement Run(const ProbeTask& task) {
    auto measurement = MakeProber().Run(task, cancellation_, observer_);
    EXPECT_TRUE(measurement.ok()) << measurement.status();
    return measurement.value_or(Measurement{});
  }
  std::string Journal() {
    std::ostringstream text;
    text << std::ifstream(dir_.path() + "/journal").rdbuf();
    return text.str();
  }

  testing::TempDir dir_;
  SystemClock clock_;
  Log log_{LogFormat::kLogfmt, LogLevel::kError, ""};
  Cancellation cancellation_;
  ProbeObserver observer_;
  std::string socket_;
  std::optional<testing::ProbeUnit> unit_;
};

class UnitProberTest : public ProberTest {
 protected:
  UnitProberTest() { StartUnit(); }
};

// What holds for children and for units.
class EveryProberTest : public ProberTest, public ::testing::WithParamInterface<bool> {
 protected:
  EveryProberTest() {
    if (GetParam()) StartUnit();
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryProberTest, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "unit" : "child"; });

TEST_P(EveryProberTest, TakesTheResultThatADaemonDidNotLiveToStore) {
  const Measurement first = Run(Task("plain"));
  const std::string journal = Journal();
  EXPECT_EQ(ToJson(Run(Task("plain"))), ToJson(first));
  EXPECT_EQ(Journal(), journal) << "the probe ran twice";
  MakeProber().Forget(Task("plain"));
  Run(Task("plain"));
  EXPECT_NE(Journal(), journal);
}

TEST_P(EveryProberTest, ForgetsWhatAKilledProbeWasWritingToo) {
  Run(Task("plain"));
  std::string result;
  for (const auto& file : std::filesystem::directory_iterator(dir_.path())) {
    if (file.path().extension() == ".result") result = file.path().string();
  }
  ASSERT_NE(result, "");
  std::ofstream(result + ".new") << "half";
  MakeProber().Forget(Task("plain"));
  EXPECT_FALSE(std::filesystem::exists(result));
  EXPECT_FALSE(std::filesystem::exists(result + ".new"));
}

TEST_P(EveryProberTest, TakesNoResultOfAnotherQuestion) {
  Run(Task("plain"));
  EXPECT_EQ(Run(Task("plain", 8)).peak_allocated_bytes, 8000);
}

TEST_P(EveryProberTest, BringsBackWhatTheProbeMeasured) {
  int64_t pid = 0;
  std::vector<int64_t> steps;
  observer_.started = [&](int64_t started) { pid = started; };
  observer_.step = [&](const ProbeStep& step) { steps.push_back(step.index); };
  Measurement measurement = Run(Task("plain"));
  EXPECT_EQ(measurement.outcome, Outcome::kOk);
  EXPECT_EQ(measurement.peak_allocated_bytes, 4000);
  ASSERT_EQ(measurement.breakdown.size(), 1U);
  EXPECT_EQ(measurement.breakdown[0].category, Category::kActivations);
  EXPECT_THAT(steps, ::testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(Journal(), "started studies/1/trials/1 " + std::to_string(pid) +
                           "\nfinished studies/1/trials/1 OK\n");
}

TEST_P(EveryProberTest, KeepsWhereMemoryRanOut) {
  Measurement measurement = Run(Task("plain", 21));
  EXPECT_EQ(measurement.outcome, Outcome::kOutOfMemory);
  EXPECT_EQ(measurement.phase, "backward");
  EXPECT_EQ(measurement.op, "linear");
  EXPECT_EQ(measurement.requested_bytes, 20'000);
}

TEST_F(ProberTest, TellsHowAProbeCrashed) {
  Measurement measurement = Run(Task("crash"));
  EXPECT_EQ(measurement.outcome, Outcome::kCrashed);
  EXPECT_THAT(measurement.message, HasSubstr("signal 6 (Aborted) after step 0"));
  EXPECT_THAT(measurement.message, HasSubstr("its last words: assertion failed: last words"));
}

TEST_F(ProberTest, CallsAnExitWithoutResultACrash) {
  Measurement measurement = Run(Task("mute"));
  EXPECT_EQ(measurement.outcome, Outcome::kCrashed);
  EXPECT_THAT(measurement.message, HasSubstr("exit status 3 before its first step"));
}

TEST_P(EveryProberTest, StopsAProbeThatTalksNonsense) {
  Measurement measurement = Run(Task("garbage"));
  EXPECT_EQ(measurement.outcome, Outcome::kCrashed);
  EXPECT_THAT(measurement.message, HasSubstr("no event"));
}

TEST_P(EveryProberTest, StopsAtTheDeadline) {
  ProbeTask task = Task("slow");
  task.deadline = absl::Milliseconds(300);
  Measurement measurement = Run(task);
  EXPECT_EQ(measurement.outcome, Outcome::kTimeout);
  EXPECT_THAT(measurement.message, HasSubstr("deadline of 300ms"));
  EXPECT_THAT(Journal(), HasSubstr("finished studies/1/trials/1 CANCELLED"));
}

TEST_P(EveryProberTest, CancelsByTheProtocolFirst) {
  bool first = true;
  observer_.step = [&](const ProbeStep&) {
    if (first) cancellation_.Cancel();
    first = false;
  };
  Measurement measurement = Run(Task("slow"));
  EXPECT_EQ(measurement.outcome, Outcome::kCancelled);
  EXPECT_THAT(Journal(), HasSubstr("finished studies/1/trials/1 CANCELLED"));
}

TEST_F(ProberTest, KillsAProbeThatDoesNotListen) {
  ProbeTask task = Task("deaf");
  task.deadline = absl::Milliseconds(200);
  const absl::Time start = absl::Now();
  int64_t pid = 0;
  observer_.started = [&](int64_t started) { pid = started; };
  Measurement measurement = Run(task);
  EXPECT_EQ(measurement.outcome, Outcome::kTimeout);
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));  // not before SIGKILL's turn
  EXPECT_EQ(kill(static_cast<pid_t>(pid), 0), -1);
}

TEST_F(ProberTest, ReapsALostProbeWhenItEndsAtLast) {
  // Given up in the moment of the kill, before the kernel can end it.
  const StopLadder::Times none = {absl::ZeroDuration(), absl::ZeroDuration(),
                                  absl::ZeroDuration()};
  Prober prober({FAKE_PROBE, dir_.path(), "", "", none}, clock_, log_);
  ProbeTask task = Task("deaf");
  task.deadline = absl::Milliseconds(200);
  int64_t pid = 0;
  observer_.started = [&](int64_t started) { pid = started; };
  auto measurement = prober.Run(task, cancellation_, observer_);
  ASSERT_TRUE(measurement.ok());
  ASSERT_EQ(measurement->outcome, Outcome::kDeviceLost) << measurement->message;
  ASSERT_EQ(kill(static_cast<pid_t>(pid), 0), 0) << "it is not even a zombie";
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (kill(static_cast<pid_t>(pid), 0) == 0 && absl::Now() < deadline) {
    prober.ReapLost();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(kill(static_cast<pid_t>(pid), 0), -1) << "a zombie stays";
}

TEST_P(EveryProberTest, CollectsWithoutStartingAProbe) {
  auto none = MakeProber().Collect(Task("plain"), cancellation_);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  EXPECT_EQ(Journal(), "");
  const Measurement first = Run(Task("plain"));
  auto left = MakeProber().Collect(Task("plain"), cancellation_);
  ASSERT_TRUE(left.ok() && left->has_value());
  EXPECT_EQ(ToJson(**left), ToJson(first));
}

TEST_P(EveryProberTest, ForgetsTheResultsOfTrialsThatAreOver) {
  Run(Task("plain"));
  MakeProber().ForgetAllBut({"studies/1/trials/1"});
  EXPECT_TRUE(MakeProber().Collect(Task("plain"), cancellation_)->has_value());
  MakeProber().ForgetAllBut({"studies/1/trials/10", "studies/2/trials/1"});
  EXPECT_FALSE(MakeProber().Collect(Task("plain"), cancellation_)->has_value());
}

TEST_P(EveryProberTest, DoesNotWaitForAProbeThatLingers) {
  Measurement measurement = Run(Task("linger"));
  EXPECT_EQ(measurement.outcome, Outcome::kOk);
}

TEST_F(ProberTest, SaysThatTheProgramCannotBeStarted) {
  auto measurement =
      MakeProber("/no/such/probe").Run(Task("plain"), cancellation_, observer_);
  EXPECT_TRUE(absl::IsUnavailable(measurement.status())) << measurement.status();
  EXPECT_THAT(std::string(measurement.status().message()), HasSubstr("/no/such/probe"));
}

TEST_P(EveryProberTest, LeavesADeviceAloneThatAnotherProcessHolds) {
  auto held = LockFile::Acquire(dir_.path() + "/host.lock");
  ASSERT_TRUE(held.ok());
  auto measurement = MakeProber().Run(Task("plain"), cancellation_, observer_);
  EXPECT_TRUE(absl::IsFailedPrecondition(measurement.status())) << measurement.status();
  EXPECT_THAT(std::string(measurement.status().message()),
              HasSubstr("held by process " + std::to_string(getpid())));
  EXPECT_EQ(Journal(), "");
}

// A daemon that died leaves its probe behind; here a child that starts one and is killed.
TEST_F(ProberTest, StopsTheProbeThatADeadDaemonLeft) {
  const pid_t daemon = fork();
  if (daemon == 0) {
    observer_.started = [](int64_t) { kill(getpid(), SIGKILL); };
    auto ignored = MakeProber().Run(Task("deaf"), cancellation_, observer_);
    _exit(ignored.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(daemon, &status, 0), daemon);
  ASSERT_TRUE(WIFSIGNALED(status));
  Measurement measurement = Run(Task("plain"));
  EXPECT_EQ(measurement.outcome, Outcome::kOk) << measurement.message;
}

TEST_F(UnitProberTest, SaysHowToGetTheSocketBack) {
  unit_.reset();  // its file stays, nobody listens
  for (const std::string why : {"Connection refused", "No such file or directory"}) {
    auto measurement = MakeProber().Run(Task("plain"), cancellation_, observer_);
    EXPECT_TRUE(absl::IsFailedPrecondition(measurement.status())) << measurement.status();
    EXPECT_THAT(std::string(measurement.status().message()),
                AllOf(HasSubstr(socket_ + ": " + why),
                      HasSubstr("systemctl start hbmtune-probe.socket")));
    std::filesystem::remove(socket_);
  }
  EXPECT_EQ(Journal(), "");
  for (const auto& file : std::filesystem::directory_iterator(dir_.path())) {
    EXPECT_NE(file.path().extension(), ".result") << "an empty result is left";
  }
}

TEST_F(UnitProberTest, TellsThatTheProbeWasKilled) {
  int64_t pid = 0;
  observer_.started = [&](int64_t started) { pid = started; };
  observer_.step = [&](const ProbeStep&) { kill(static_cast<pid_t>(pid), SIGKILL); };
  Measurement measurement = Run(Task("slow"));
  EXPECT_EQ(measurement.outcome, Outcome::kCrashed);
  EXPECT_THAT(measurement.message,
              HasSubstr("(process " + std::to_string(pid) +
                        ") ended its connection without a result after step "));
  EXPECT_THAT(measurement.message, HasSubstr("journalctl -u 'hbmtune-probe@*'"));
}

TEST_F(UnitProberTest, KeepsTheDeviceUntilALostProbeIsGone) {
  Prober prober = MakeProber();
  ProbeTask task = Task("deaf");
  task.deadline = absl::Milliseconds(200);
  int64_t pid = 0;
  observer_.started = [&](int64_t started) { pid = started; };
  auto lost = prober.Run(task, cancellation_, observer_);
  ASSERT_TRUE(lost.ok()) << lost.status();
  EXPECT_EQ(lost->outcome, Outcome::kDeviceLost);
  EXPECT_THAT(lost->message, HasSubstr("is still connected although it was told to stop"));
  auto held = prober.Run(Task("plain"), cancellation_, observer_);
  EXPECT_TRUE(absl::IsFailedPrecondition(held.status())) << held.status();
  EXPECT_THAT(std::string(held.status().message()),
              HasSubstr("held by the probe " + std::to_string(pid) + " in its unit"));
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0) << "we have signalled another's process";
  EXPECT_EQ(Run(Task("plain")).outcome, Outcome::kOk);
  prober.ReapLost();
}

TEST_F(UnitProberTest, AProbeEndsWithItsDaemon) {
  const pid_t daemon = fork();
  if (daemon == 0) {
    observer_.step = [](const ProbeStep&) { kill(getpid(), SIGKILL); };
    auto ignored = MakeProber().Run(Task("slow"), cancellation_, observer_);
    _exit(ignored.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(daemon, &status, 0), daemon);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Run(Task("plain")).outcome, Outcome::kOk);
  EXPECT_THAT(Journal(), HasSubstr("finished studies/1/trials/1 CANCELLED\nstarted"));
}

TEST(StopLadder, TakesEachStepOnceAndInTime) {
  StopLadder ladder;
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(ladder.Next(), absl::InfiniteFuture());
  ladder.Start(start);
  EXPECT_EQ(ladder.Due(start), StopLadder::Action::kInterrupt);
  EXPECT_EQ(ladder.Due(start + absl::Seconds(2.9)), std::nullopt);
  EXPECT_EQ(ladder.Due(start + absl::Seconds(3)), StopLadder::Action::kTerminate);
  ladder.Start(start + absl::Seconds(5));  // changes nothing
  EXPECT_EQ(ladder.Next(), start + absl::Seconds(10));
  EXPECT_EQ(ladder.Due(start + absl::Seconds(20)), StopLadder::Action::kKill);
  EXPECT_EQ(ladder.Due(start + absl::Seconds(20)), StopLadder::Action::kGiveUp);
  EXPECT_EQ(ladder.Due(start + absl::Hours(1)), std::nullopt);
}

TEST(EventReader, TakesEventsInAnyPieces) {
  v1::ProbeEvent event;
  event.mutable_step()->set_index(300);
  const std::string body = event.SerializeAsString();
  const std::string bytes = std::string(1, static_cast<char>(body.size())) + body;
  EventReader reader;
  int seen = 0;
  for (char byte : bytes + bytes) {
    reader.Append(std::string(1, byte));
    auto next = reader.Next();
    ASSERT_TRUE(next.ok());
    if (next->has_value()) {
      ++seen;
      EXPECT_EQ((*next)->step().index(), 300);
    }
  }
  EXPECT_EQ(seen, 2);
}

TEST(EventReader, RefusesAnEventOfGigabytes) {
  EventReader reader;
  reader.Append("\xff\xff\xff\xff\x07");
  EXPECT_FALSE(reader.Next().ok());
}

}  // namespace
}  // namespace hbmtune::daemon
