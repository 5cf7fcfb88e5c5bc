#include "client/completion.h"

#include <CLI/Config.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/app.h"
#include "tests/support/temp_dir.h"

namespace hbmtune::client {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() { BuildApp(app_, invocation_); }

  // What bash offers for the last of the words.
  std::vector<std::string> Offers(const std::string& words) {
    std::string script = folder_.path() + "/completion.bash";
    std::ofstream(script) << BashCompletion(app_);
    std::string command = "bash -c 'source " + script + "; " + daemon_ +
                          "COMP_WORDS=(hbmtune " + words +
                          "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hbmtune 2>/dev/null; "
                          "printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
    std::FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0);
    std::istringstream lines(text);
    std::vector<std::string> offers;
    for (std::string line; std::getline(lines, line);) offers.push_back(line);
    return offers;
  }

  // In place of the program itself, which is asked for names; says which daemon it was asked of.
  const std::string daemon_ =
      "hbmtune() { [[ $2 == --names ]] || return; shift 2; asked=\"$*\"; "
      "printf \"%s\\n\" model:mi210 model:mi300x 0000:03:00.0 hip:0 \"${asked// /_}\"; }; ";
  hbmtune::testing::TempDir folder_;
  Invocation invocation_;
  CLI::App app_;
};

TEST_F(CompletionTest, BashOffersVerbsFlagsAndNames) {
  EXPECT_THAT(Offers("sho"), ElementsAre("show"));
  EXPECT_THAT(Offers("tune --zero.st"), ElementsAre("--zero.stage"));
  EXPECT_THAT(Offers("tune --framework hf-eager+"),
              ElementsAre("hf-eager+ddp", "hf-eager+deepspeed"));
  EXPECT_THAT(Offers("export 7 --format = acc"), ElementsAre("accelerate"));
  EXPECT_THAT(Offers("completion z"), ElementsAre("zsh"));
}

TEST_F(CompletionTest, BashOffersOnlyWhatTheVerbHas) {
  EXPECT_THAT(Offers("show --"), Contains("--output"));
  EXPECT_THAT(Offers("show --"), Not(Contains("--model")));
}

TEST_F(CompletionTest, BashOffersFilesForAModel) {
  std::ofstream(folder_.path() + "/config.json") << "{}";
  EXPECT_THAT(Offers("tune --model " + folder_.path() + "/con"),
              ElementsAre(folder_.path() + "/config.json"));
}

TEST_F(CompletionTest, OfFilesOnlyFoldersAndJsonAreModels) {
  const std::string folder = folder_.path() + "/models";
  std::filesystem::create_directories(folder + "/two words");
  std::ofstream(folder + "/config.json") << "{}";
  std::ofstream(folder + "/weights.bin") << "";
  EXPECT_THAT(Offers("tune --model " + folder + "/"),
              UnorderedElementsAre(folder + "/two words", folder + "/config.json"));
}

TEST_F(CompletionTest, BashAsksTheDaemonForDevices) {
  EXPECT_THAT(Offers("tune --device hi"), ElementsAre("hip:0"));
  // Words as bash breaks them: it replaces what follows the last colon.
  EXPECT_THAT(Offers("tune --device model :"), ElementsAre("mi210", "mi300x"));
  EXPECT_THAT(Offers("tune --device model : mi3"), ElementsAre("mi300x"));
  EXPECT_THAT(Offers("tune --device = 0000 : 03 : 0"), ElementsAre("00.0"));
  EXPECT_THAT(Offers("lease hip : 0 mo"), ElementsAre("model:mi210", "model:mi300x"));
  EXPECT_THAT(Offers("lease --jo"), ElementsAre("--job"));
  EXPECT_THAT(Offers("tune --local --socket /x/y.sock --device --"),
              ElementsAre("--local_--socket_/x/y.sock"));
}

TEST_F(CompletionTest, BashAsksTheDaemonForStudies) {
  for (const char* verb : {"show", "watch", "recommend", "cancel", "export"}) {
    EXPECT_THAT(Offers(std::string(verb) + " hi"), ElementsAre("hip:0")) << verb;
  }
  EXPECT_THAT(Offers("show --wh"), ElementsAre("--why"));
}

TEST_F(CompletionTest, ZshHasEveryVerbAndItsNames) {
  std::string script = ZshCompletion(app_);
  for (const CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; })) {
    EXPECT_THAT(script, HasSubstr("\n    " + verb->get_name() + ") _arguments"));
  }
  EXPECT_THAT(script, HasSubstr("'--optimizer=[optimizer\\: adamw, adamw-8bit or sgd "
                                "\\[adamw\\]]:value:(adamw adamw-8bit sgd)'"));
  EXPECT_THAT(script, HasSubstr("]:device: _hbmtune_names devices'"));
  EXPECT_THAT(script, HasSubstr("'*:device: _hbmtune_names devices'"));
  EXPECT_THAT(script, HasSubstr("'1:study: _hbmtune_names studies'"));
  EXPECT_THAT(script, HasSubstr("'--local[use the private daemon"));
}

}  // namespace
}  // namespace hbmtune::client
