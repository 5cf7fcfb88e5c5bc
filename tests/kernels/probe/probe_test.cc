#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/model/presets.h"
#include "kernels/core/json.h"
#include "proto/convert.h"
#include "tests/kernels/probe/probe_process.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::testing {
namespace {

using ::testing::HasSubstr;

v1::ProbeRequest Request(int64_t micro_batch = 2, int64_t memory_bytes = 128 << 20) {
  Workload workload;
  workload.model = *FindPreset("tiny-llama");
  workload.seq_len = 32;
  TrainConfig config;
  config.micro_batch = micro_batch;
  v1::ProbeRequest request;
  request.set_trial("studies/1/trials/1");
  ToProto(workload, *request.mutable_workload());
  ToProto(config, *request.mutable_train_config());
  request.set_device("host");
  request.set_memory_bytes(memory_bytes);
  request.set_warmup_steps(1);
  request.set_min_steps(2);
  request.set_max_steps(2);
  request.set_threads(1);
  return request;
}

Measurement Finished(const std::vector<v1::ProbeEvent>& events) {
  if (events.empty() || !events.back().has_finished()) {
    ADD_FAILURE() << "no finished event";
    return {};
  }
  return FromProto<Measurement>(events.back().finished().measurement());
}

TEST(Probe, TrainsAndReportsEveryStep) {
  ProbeProcess probe;
  probe.Send(Request());
  const auto events = probe.All();
  ASSERT_GE(events.size(), 8u);  // started, 3 × (step, memory), finished
  EXPECT_EQ(events[0].started().capacity_bytes(), 128 << 20);
  EXPECT_EQ(events[0].started().pid(), probe.pid());
  EXPECT_EQ(events[1].step().index(), 0);
  EXPECT_NEAR(events[1].step().loss(), std::log(4096), 0.2);
  const Measurement measurement = Finished(events);
  EXPECT_EQ(measurement.outcome, Outcome::kOk);
  EXPECT_EQ(measurement.steps, 2);
  EXPECT_GT(measurement.tokens_per_second, 0);
  EXPECT_GT(measurement.peak_allocated_bytes, 0);
  EXPECT_GE(measurement.peak_reserved_bytes, measurement.peak_allocated_bytes);
  EXPECT_LE(measurement.peak_reserved_bytes, 128 << 20);
  EXPECT_FALSE(measurement.breakdown.empty());
  EXPECT_EQ(probe.Wait(), 0);
}

TEST(Probe, ReallyRunsOutOfMemoryAndSaysWhere) {
  Measurement first;
  for (int i = 0; i < 2; ++i) {
    ProbeProcess probe;
    probe.Send(Request(64));
    const Measurement measurement = Finished(probe.All());
    EXPECT_EQ(measurement.outcome, Outcome::kOutOfMemory);
    EXPECT_GT(measurement.requested_bytes, 1 << 20);
    EXPECT_LT(measurement.free_bytes, 20 << 20);  // the segment that such a request asks for
    EXPECT_GT(measurement.allocated_bytes, 0);
    EXPECT_GE(measurement.reserved_bytes, measurement.allocated_bytes);
    EXPECT_FALSE(measurement.phase.empty());
    EXPECT_FALSE(measurement.op.empty());
    EXPECT_THAT(measurement.message, HasSubstr("out of memory: asked for"));
    EXPECT_EQ(probe.Wait(), 0);
    if (i == 0) {
      first = measurement;
    } else {
      EXPECT_EQ(ToJson(measurement), ToJson(first));  // repeatable to the byte
    }
  }
}

TEST(Probe, RefusesWhatDoesNotFitTogether) {
  v1::ProbeRequest request = Request(0);
  ProbeProcess probe;
  probe.Send(request);
  const Measurement measurement = Finished(probe.All());
  EXPECT_EQ(measurement.outcome, Outcome::kInvalid);
  EXPECT_THAT(measurement.message, HasSubstr("micro_batch"));
  EXPECT_EQ(probe.Wait(), 0);
}

TEST(Probe, RefusesADeviceItDoesNotHave) {
  v1::ProbeRequest request = Request();
  request.set_device("0000:c1:00.0");
  ProbeProcess probe;
  probe.Send(request);
  const Measurement measurement = Finished(probe.All());
  EXPECT_EQ(measurement.outcome, Outcome::kInvalid);
  EXPECT_THAT(measurement.message, HasSubstr("0000:c1:00.0"));
}

v1::ProbeRequest Endless() {
  v1::ProbeRequest request = Request();
  request.set_max_steps(1'000'000);
  request.set_step_budget_seconds(1000);
  return request;
}

TEST(Probe, IsCancelledBySigintAndSaysSo) {
  for (int signal : {SIGINT, SIGTERM}) {
    ProbeProcess probe;
    probe.Send(Endless());
    while (auto event = probe.Next()) {
      if (event->has_step()) break;
    }
    kill(probe.pid(), signal);
    EXPECT_EQ(Finished(probe.All()).outcome, Outcome::kCancelled);
    EXPECT_EQ(probe.Wait(), 0);
  }
}

TEST(Probe, EndsWhenItsProberIsGone) {
  ProbeProcess probe;
  probe.Send(Endless());
  while (auto event = probe.Next()) {
    if (event->has_step()) break;
  }
  probe.CloseInput();
  EXPECT_EQ(Finished(probe.All()).outcome, Outcome::kCancelled);
  EXPECT_EQ(probe.Wait(), 0);
}

// It hangs in a write that nobody reads.
TEST(Probe, KillsItselfWhenItHangsAndItsProberIsGone) {
  ProbeProcess probe;
  constexpr int kPage = 4096;
  ASSERT_EQ(fcntl(probe.output(), F_SETPIPE_SZ, kPage), kPage);
  probe.Send(Endless());
  for (int waiting = 0; waiting < kPage - 200;) {
    ASSERT_EQ(ioctl(probe.output(), FIONREAD, &waiting), 0);
    ASSERT_EQ(waitpid(probe.pid(), nullptr, WNOHANG), 0) << "it is gone";
    usleep(10'000);
  }
  usleep(500'000);
  probe.CloseInput();
  EXPECT_EQ(probe.Wait(), 128 + SIGKILL);
}

TEST(Probe, WithoutARequestFails) {
  ProbeProcess probe;
  probe.CloseInput();
  EXPECT_TRUE(probe.All().empty());
  EXPECT_EQ(probe.Wait(), 1);
}

// Runs the program with these words of a shell; its exit status, what it says on stderr.
std::pair<int, std::string> RunProbe(const std::string& words) {
  TempDir dir;
  const std::string said = dir.path() + "/stderr";
  const std::string command = "timeout 20 " + std::string(HBMTUNE_BINARY_DIR) +
                              "/hbmtune-probe " + words + " > /dev/null 2> " + said;
  const int status = std::system(command.c_str());
  std::ifstream file(said);
  return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(file), {}}};
}

TEST(Probe, RefusesFilesThatAreNone) {
  TempDir dir;
  const std::string fifo = dir.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string flag : {"--train", "--replay"}) {
    for (const std::string& path : {fifo, dir.path(), std::string("/dev/zero")}) {
      const auto [code, sentence] = RunProbe(flag + " " + path);
      EXPECT_EQ(code, 2) << flag << path;
      EXPECT_EQ(sentence, "hbmtune-probe: " + path + " is no regular file\n");
    }
  }
  EXPECT_EQ(RunProbe("--train " + dir.path() + "/none").first, 2);
}

TEST(Probe, SaysInASentenceWhatIsWrongWithATrace) {
  TempDir dir;
  const std::string path = dir.path() + "/trace.json";
  for (const std::string text : {"{nonsense", "{}", R"({"events": [["free", 7]]})"}) {
    std::ofstream(path) << text;
    const auto [code, sentence] = RunProbe("--replay " + path);
    EXPECT_EQ(code, 2);
    EXPECT_THAT(sentence, ::testing::StartsWith("hbmtune-probe: " + path + " is not a valid"));
    EXPECT_THAT(sentence, ::testing::Not(HasSubstr("json.exception")));
  }
}

TEST(Probe, BoundsItsThreads) {
  for (const std::string threads : {"-1", "1025", "100000"}) {
    const auto [code, sentence] = RunProbe("--train /dev/zero --threads " + threads);
    EXPECT_EQ(code, 2);
    EXPECT_THAT(sentence, HasSubstr("--threads"));
  }
}

// What the environment of a standalone run holds once it trains.
int SpinCountIs1000(const std::string& variables) {
  TempDir dir;
  const std::string text = dir.path() + "/text";
  std::ofstream(text) << std::string(4096, 'x');
  const std::string command = variables + " timeout 60 " + HBMTUNE_BINARY_DIR +
                              "/hbmtune-probe --steps 1000000 --train " + text + " > " +
                              dir.path() + "/out & pid=$!; until grep -q step " + dir.path() +
                              "/out; do sleep 0.1; kill -0 $pid || exit 9; done; child=$(cat "
                              "/proc/$pid/task/$pid/children); grep -qz '^GOMP_SPINCOUNT=1000$' "
                              "/proc/${child%% *}/environ; found=$?; kill $pid; wait $pid; "
                              "exit $found";
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST(Probe, ThreadsOfAStandaloneRunSpinBrieflyUnlessTheCallerChose) {
  const std::string unset = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT";
  EXPECT_EQ(SpinCountIs1000(unset), 0);
  EXPECT_EQ(SpinCountIs1000(unset + " OMP_WAIT_POLICY=passive"), 1);
  EXPECT_EQ(SpinCountIs1000(unset + " GOMP_SPINCOUNT=5"), 1);
}

TEST(Probe, KeepsAJournalOfItsOwn) {
  TempDir dir;
  const std::string path = dir.path() + "/journal";
  for (int64_t micro_batch : {2, 64}) {
    v1::ProbeRequest request = Request(micro_batch);
    request.set_journal_path(path);
    ProbeProcess probe;
    probe.Send(request);
    probe.All();
    probe.Wait();
  }
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("started studies/1/trials/1 "));
  EXPECT_EQ(lines[1], "finished studies/1/trials/1 OK");
  EXPECT_EQ(lines[3], "finished studies/1/trials/1 OUT_OF_MEMORY");
}

// The shell's exit status of the command line of a probe for people.
int Shell(const std::string& arguments) {
  const std::string probe = HBMTUNE_BINARY_DIR "/hbmtune-probe ";
  const int status = std::system(("timeout 120 " + probe + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Train, FailsWhereItsOutputCannotBeWrittenAndRefusesALearningRateThatIsNone) {
  TempDir folder;
  const std::string text = folder.path() + "/text";
  std::ofstream(text) << std::string(4096, 'a');
  const std::string small = " --steps 2 --seq-len 16 --micro-batch 1 --threads 1 ";
  EXPECT_EQ(Shell("--train " + text + small + ">/dev/full"), 1);
  EXPECT_EQ(Shell("--train " + text + small + "--lr nan"), 2);
  EXPECT_EQ(Shell("--train " + text + small + "--lr=-1"), 2);
  const std::string trace = folder.path() + "/trace";
  std::ofstream(trace) << R"({"events": []})";
  EXPECT_EQ(Shell("--replay " + trace + " >/dev/full"), 1);
}

}  // namespace
}  // namespace hbmtune::testing
