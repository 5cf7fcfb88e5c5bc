#include "client/app.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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
        Mistake{{"estimate", "--device", "model:mi210", "--device", "model:mi300x"},
                "--device is given twice: hbmtune estimate takes one; hbmtune compare takes "
                "several"},
        Mistake{{"watch", "--device=hip:0", "--device=hip:1"},
                "--device is given twice: hbmtune watch takes one; hbmtune compare takes several"},
        Mistake{{"tune", "--zero.reduce_bucket_size", "many"},
                "--zero.reduce-bucket-size: 'many' is not a whole number"},
        Mistake{{"estimate", "--param-dtype", "int64"},
                "--param-dtype: 'int64' is not fp32, bf16 or fp16"},
        Mistake{{"sweep", "--model", "gpt2", "--grid", "micro-batch=1..1000000000"},
                "--grid: '1..1000000000' is over 100,000 values, the most that one tunable may "
                "take"},
        Mistake{{"sweep", "--model", "gpt2", "--grid",
                 "micro-batch=-9223372036854775808..9223372036854775807"},
                "--grid: '-9223372036854775808..9223372036854775807' is over 100,000 values, the "
                "most that one tunable may take"},
        Mistake{{"tune", "--model", "meta-llama/Llama-2-7b-hf"},
                "no such file: meta-llama/Llama-2-7b-hf; models are not fetched from a hub: give "
                "--model llama2-7b, the preset of that shape, or a path to its config.json"},
        Mistake{{"compare", "--model", "gpt2", "--price", "mi300x"},
                "--price: 'mi300x' is not NAME=DOLLARS, like mi300x=2.40"},
        Mistake{{"show"}, "STUDY is missing; see hbmtune show --help"},
        Mistake{{"completion"}, "SHELL is missing (bash, zsh); see hbmtune completion --help"},
        Mistake{{"tune", "--model"}, "--model needs a value (MODEL); see hbmtune tune --help"},
        Mistake{{"tune", "--max-trials", "many"}, "--max-trials: 'many' is not a whole number"},
        Mistake{{"top", "--every", "0"}, "--every: '0' is under 0.1"},
        Mistake{{"calibrate", "--threads", "5000"}, "--threads: '5000' is over 1024"},
        Mistake{{"devices", "--local=maybe"},
                "--local is given or left out, and takes no value; see hbmtune devices --help"},
        Mistake{{"lease", "host", "--job", "7", "--time", "soon"},
                "--time: 'soon' is not a time over 0 (like 90m or 8h)"},
        Mistake{{"lease", "host", "--job", "7", "--user", "no-such-user"},
                "--user: there is no user 'no-such-user'"},
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
                "give either a STUDY or a workload, not both"},
        Mistake{{"estimate", "--model", "gpt2", "--device", ""},
                "--device: the name is empty; see hbmtune devices"},
        Mistake{{"estimate", "--model", "gpt2", "--timeline", ""},
                "--timeline: the path is empty"},
        Mistake{{"estimate", "--model", std::string(5000, 'a')},
                "--model: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…', of 5,000 characters, is "
                "longer than any preset's name or path"},
        Mistake{{"ladder", "--model", "there/config.json"},
                "--model: 'there/config.json' is a path: a ladder is of presets; hbmtune estimate "
                "takes a config.json"},
        Mistake{{"show", "\xff"}, "argument 2 of the command line is not UTF-8 text"}));

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

// In a process of its own, for stdout is one per process and its first failure is kept.
int ExitCodeWithStdout(const char* path) {
  pid_t child = fork();
  if (child == 0) {
    close(STDOUT_FILENO);
    if (path != nullptr && open(path, O_WRONLY) != STDOUT_FILENO) _exit(99);
    char program[] = "hbmtune", verb[] = "schema", of[] = "tune";
    char* words[] = {program, verb, of, nullptr};
    _exit(ClientMain(3, words));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(App, OutputThatCannotBeWrittenIsAFailure) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ExitCodeWithStdout("/dev/full"), kFailed);
  EXPECT_EQ(ExitCodeWithStdout(nullptr), kFailed);
  EXPECT_EQ(ExitCodeWithStdout("/dev/null"), kDone);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "hbmtune: cannot write the output: No space left on device\n"
            "hbmtune: cannot write the output: Bad file descriptor\n");
}

}  // namespace
}  // namespace hbmtune::client
