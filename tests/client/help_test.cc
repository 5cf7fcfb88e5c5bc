#include "client/help.h"

#include <CLI/Config.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "client/app.h"
#include "client/text.h"

namespace hbmtune::client {
namespace {

using ::testing::HasSubstr;

class HelpTest : public ::testing::Test {
 protected:
  HelpTest() { BuildApp(app_, invocation_); }

  Invocation invocation_;
  CLI::App app_;
};

TEST_F(HelpTest, EveryVerbsHelpFitsEightyColumns) {
  std::vector<CLI::App*> all = app_.get_subcommands([](const CLI::App*) { return true; });
  all.push_back(&app_);
  EXPECT_EQ(all.size(), 22u);
  for (const CLI::App* verb : all) {
    std::istringstream lines(HelpText(*verb));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(DisplayWidth(line), 80u) << verb->get_name() << ": " << line;
    }
  }
}

TEST_F(HelpTest, EveryFlagOfAVerbIsInItsHelpWithAnExplanation) {
  for (const CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; })) {
    std::string help = HelpText(*verb);
    for (const CLI::Option* option : verb->get_options()) {
      EXPECT_THAT(help, HasSubstr(option->get_name(option->get_positional())));
      EXPECT_FALSE(option->get_description().empty())
          << verb->get_name() << " " << option->get_name();
    }
    EXPECT_THAT(help, HasSubstr("examples\n")) << verb->get_name();
  }
}

TEST_F(HelpTest, NamesOfEnumsAreListed) {
  std::string help = HelpText(*app_.get_subcommand("tune"));
  EXPECT_THAT(help, HasSubstr("adamw|adamw-8bit|sgd"));
  EXPECT_THAT(help, HasSubstr("hf-sdpa+deepspeed"));
  EXPECT_THAT(help, HasSubstr("none|stream|cpu_adam"));
}

TEST_F(HelpTest, DefaultsAreShownWhereTheyHold) {
  EXPECT_THAT(HelpText(*app_.get_subcommand("estimate")), HasSubstr("one rank [1]"));
  EXPECT_THAT(HelpText(*app_.get_subcommand("estimate")), HasSubstr("[fp32 on host, bf16 on a"));
  EXPECT_THAT(HelpText(*app_.get_subcommand("tune")), HasSubstr("tokens in a sequence [2048]"));
  // A study searches it: there the default means nothing.
  EXPECT_EQ(HelpText(*app_.get_subcommand("tune")).find("one rank [1]"), std::string::npos);
}

}  // namespace
}  // namespace hbmtune::client
