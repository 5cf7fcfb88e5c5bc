#include "client/help.h"

#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <vector>

#include "client/text.h"

namespace hbmtune::client {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kNameColumns = 30;

class Formatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    return HelpText(*app);
  }
};

// "  --name TYPE      help, wrapped": the help starts on a line of its own after a long name.
std::string Entry(const std::string& name, const std::string& help) {
  std::string text = "  " + name;
  bool own_line = DisplayWidth(text) + 2 > kNameColumns;
  text = own_line ? text + "\n" + std::string(kNameColumns, ' ') : PadRight(text, kNameColumns);
  bool first = true;
  for (const std::string& line : Wrap(help, kColumns - kNameColumns)) {
    if (!first) text += "\n" + std::string(kNameColumns, ' ');
    text += line;
    first = false;
  }
  return text + "\n";
}

std::string Paragraph(const std::string& text) {
  std::string lines;
  for (const std::string& line : Wrap(text, kColumns)) lines += line + "\n";
  return lines;
}

std::string OptionName(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::string name;
  for (const std::string& s : option.get_snames()) name += "-" + s + ", ";
  for (const std::string& l : option.get_lnames()) name += "--" + l + ", ";
  name.resize(name.size() - 2);
  std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0 || type.empty()) return name;
  // Values that would not fit beside the help stand in it: see OptionHelp.
  return DisplayWidth(name + type) + 5 > 2 * kNameColumns ? name : name + " " + type;
}

std::string OptionHelp(const CLI::Option& option) {
  std::string type = option.get_type_name();
  bool hidden = !option.get_positional() && option.get_items_expected_max() > 0 &&
                OptionName(option).find(type) == std::string::npos;
  if (!hidden) return option.get_description();
  for (size_t at = 0; (at = type.find('|', at)) != std::string::npos; at += 2) {
    type.replace(at, 1, ", ");
  }
  return option.get_description() + ": " + type;
}

std::string Usage(const CLI::App& app) {
  std::string command = app.get_name();
  for (const CLI::App* at = app.get_parent(); at != nullptr; at = at->get_parent()) {
    command = at->get_name() + " " + command;
  }
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    std::string name = option->get_name(true);
    if (option->get_items_expected_max() > 1) name += "...";
    command += option->get_required() ? " " + name : " [" + name + "]";
  }
  bool has_verbs = !app.get_subcommands({}).empty();
  return "usage: " + command + (has_verbs ? " VERB [FLAGS]" : " [FLAGS]") + "\n";
}

// CLI11's own group, which holds --help and --version: they come last.
constexpr const char* kOwnGroup = "Options";

std::string Groups(const CLI::App& app) {
  std::vector<std::string> titles;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    bool known = group == kOwnGroup ||
                 std::find(titles.begin(), titles.end(), group) != titles.end();
    if (!group.empty() && !known) titles.push_back(group);
  }
  titles.push_back(kOwnGroup);
  std::string text;
  for (const std::string& title : titles) {
    text += "\n" + Paragraph(title == kOwnGroup ? "help" : title);
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == title) text += Entry(OptionName(*option), OptionHelp(*option));
    }
  }
  return text;
}

std::string Verbs(const CLI::App& app) {
  std::string text;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (text.empty()) text = "\nverbs\n";
    std::string name = verb->get_name();
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional() && option->get_required()) name += " " + option->get_name(true);
    }
    text += Entry(name, verb->get_description());
  }
  return text;
}

}  // namespace

std::string HelpText(const CLI::App& app) {
  std::string text = Paragraph(app.get_description()) + "\n" + Usage(app);
  text += Verbs(app) + Groups(app);
  if (!app.get_footer().empty()) text += "\n" + app.get_footer() + "\n";
  return text;
}

void UseHelpText(CLI::App& app) { app.formatter(std::make_shared<Formatter>()); }

}  // namespace hbmtune::client
