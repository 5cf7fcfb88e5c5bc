#include "client/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hbmtune::client {
namespace {

struct Result {
  int code;
  std::string out;
  std::string err;
};

Result RunClient(std::vector<std::string> words) {
  words.insert(words.begin(), "hbmtune");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  int code = ClientMain(static_cast<int>(arguments.size()), arguments.data());
  return {code, ::testing::internal::GetCapturedStdout(),
          ::testing::internal::GetCapturedStderr()};
}

struct Mistake {
  std::vector<std::string> words;
  std::string sentence;
};

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, GetOneSentenceAndExitCodeTwo) {
  Result run = RunClient(GetParam().words);
  EXPECT_EQ(run.code, kUsage);
  EXPECT_EQ(run.err, "hbmtune: " + GetParam().sentence + "\n");
  EXPECT_EQ(run.out, "");
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, Mistakes,
    ::testing::Values(
        Mistake{{}, "a verb is missing; see hbmtune --help"},
        Mistake{{"tuen"}, "unknown verb tuen (did you mean tune?); see hbmtune --help"},
        Mistake{{"tune", "--mcro-batch=3"},
                "unknown flag --mcro-batch (did you mean --micro-batch?); see hbmtune tune "
                "--help"},
        Mistake{{"show"}, "STUDY is required"},
        Mistake{{"show", "1", "2"}, "unexpected 2; see hbmtune show --help"},
        Mistake{{"export", "7", "--format", "deepspede"},
                "--format: 'deepspede' is not deepspeed, hf, accelerate, env, model or hbmtune "
                "(did you mean deepspeed?)"},
        Mistake{{"tune"},
                "--model is missing: give a preset's name or a path to a Hugging Face "
                "config.json"},
        Mistake{{"tune", "--model", "gpt2", "--budget", "0"},
                "--budget: '0' is not a time over 0 (like 60s, 5m or 1h)"},
        Mistake{{"recommend", "7", "--seq-len", "3"},
                "give either a STUDY or a workload, not both"}));

TEST(App, AnUnreachableDaemonIsExitCodeFour) {
  Result run = RunClient({"devices", "--socket", "/nowhere/at/all.sock"});
  EXPECT_EQ(run.code, kUnreachable);
  EXPECT_EQ(run.err, "hbmtune: no daemon at /nowhere/at/all.sock: there is no such socket\n");
}

TEST(App, VersionAndHelpAreDone) {
  EXPECT_EQ(RunClient({"--version"}).out, "hbmtune " HBMTUNE_VERSION "\n");
  Result help = RunClient({"tune", "--help"});
  EXPECT_EQ(help.code, kDone);
  EXPECT_THAT(help.out, ::testing::HasSubstr("usage: hbmtune tune [FLAGS]"));
}

}  // namespace
}  // namespace hbmtune::client
