#include "client/completion.h"

#include <functional>
#include <vector>

namespace hbmtune::client {
namespace {

enum class Takes { kNothing, kAnything, kNames, kFiles };

struct Flag {
  std::string name;  // "--device"
  std::string help;
  Takes takes = Takes::kNothing;
  std::string names;  // "fp32 bf16" where it takes names
};

struct VerbFlags {
  std::string name;
  std::string help;
  std::vector<Flag> flags;
  Flag positional;  // name "" if there is none
};

Flag Describe(const CLI::Option& option) {
  Flag flag;
  if (!option.get_lnames().empty()) flag.name = "--" + option.get_lnames()[0];
  flag.help = option.get_description();
  std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return flag;
  flag.takes = Takes::kAnything;
  if (type == "PATH" || type == "MODEL") flag.takes = Takes::kFiles;
  if (type.find('|') == std::string::npos) return flag;
  flag.takes = Takes::kNames;
  flag.names = type;
  for (char& c : flag.names) {
    if (c == '|') c = ' ';
  }
  return flag;
}

std::vector<VerbFlags> Describe(const CLI::App& app) {
  std::vector<VerbFlags> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    VerbFlags& entry = verbs.emplace_back();
    entry.name = verb->get_name();
    entry.help = verb->get_description();
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional()) {
        entry.positional = Describe(*option);
        entry.positional.name = option->get_name(true);
      } else {
        entry.flags.push_back(Describe(*option));
      }
    }
  }
  return verbs;
}

// Help within single quotes of zsh's _arguments, where brackets and colons mean something.
std::string ZshText(const std::string& text) {
  std::string quoted;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted;
}

std::string ZshArgument(const Flag& flag) {
  switch (flag.takes) {
    case Takes::kNothing: return "";
    case Takes::kAnything: return ":value:";
    case Takes::kNames: return ":value:(" + flag.names + ")";
    case Takes::kFiles: return ":file:_files";
  }
  return "";
}

std::string BashCase(const VerbFlags& verb) {
  std::string words;
  std::string values;
  for (const Flag& flag : verb.flags) {
    words += (words.empty() ? "" : " ") + flag.name;
    if (flag.takes == Takes::kNothing) continue;
    values += "        " + flag.name + ") ";
    if (flag.takes == Takes::kNames) values += "words='" + flag.names + "'";
    if (flag.takes == Takes::kFiles) values += "files=1";
    values += values.ends_with(") ") ? "return ;;\n" : " ;;\n";
  }
  if (verb.positional.takes == Takes::kNames) words += " " + verb.positional.names;
  return "    " + verb.name + ")\n      case \"$previous\" in\n" + values +
         "        *) words='" + words + "' ;;\n      esac ;;\n";
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string verbs;
  std::string cases;
  for (const VerbFlags& verb : Describe(app)) {
    verbs += (verbs.empty() ? "" : " ") + verb.name;
    cases += BashCase(verb);
  }
  // "--flag=value" comes in as three words, because = breaks words in bash.
  return "# hbmtune's completion for bash: source <(hbmtune completion bash)\n"
         "_hbmtune() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local words='' files=''\n"
         "  if [[ $current == '=' ]]; then current=''; fi\n"
         "  if [[ $previous == '=' ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         cases + "    *) words='" + verbs + " --help --version' ;;\n  esac\n" +
         "  if [[ -n $files ]]; then compopt -o filenames; COMPREPLY=($(compgen -f -- "
         "\"$current\"))\n"
         "  else COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); fi\n"
         "}\n"
         "complete -F _hbmtune hbmtune\n";
}

std::string ZshCompletion(const CLI::App& app) {
  std::string verbs;
  std::string cases;
  for (const VerbFlags& verb : Describe(app)) {
    verbs += "    '" + verb.name + ":" + ZshText(verb.help) + "'\n";
    cases += "    " + verb.name + ") _arguments";
    for (const Flag& flag : verb.flags) {
      cases += " \\\n      '" + flag.name + (flag.takes == Takes::kNothing ? "" : "=") + "[" +
               ZshText(flag.help) + "]" + ZshArgument(flag) + "'";
    }
    if (!verb.positional.name.empty()) {
      cases += " \\\n      '1" + ZshArgument(verb.positional) + "'";
    }
    cases += " ;;\n";
  }
  return "#compdef hbmtune\n"
         "# hbmtune's completion for zsh: hbmtune completion zsh > ~/.zfunc/_hbmtune\n"
         "_hbmtune() {\n"
         "  local -a verbs=(\n" +
         verbs +
         "  )\n"
         "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
         "  local verb=$words[2]\n"
         "  shift words; (( CURRENT-- ))\n"
         "  case $verb in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _hbmtune ]]; then _hbmtune \"$@\"; else compdef _hbmtune hbmtune; "
         "fi\n";
}

}  // namespace hbmtune::client
