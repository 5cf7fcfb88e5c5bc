#include "client/completion.h"

#include <functional>
#include <vector>

#include "client/presets.h"

namespace hbmtune::client {
namespace {

enum class Takes { kNothing, kAnything, kNames, kFiles, kModels, kDevices, kStudies };

struct Flag {
  std::string name;  // "--device"
  std::string help;
  Takes takes = Takes::kNothing;
  std::string names;  // "fp32 bf16" where it takes names
  bool repeated = false;
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
  if (type == "PATH") flag.takes = Takes::kFiles;
  if (type == "MODEL") flag.takes = Takes::kModels;
  if (type == "DEVICE") flag.takes = Takes::kDevices;
  if (type == "STUDY") flag.takes = Takes::kStudies;
  flag.repeated = option.get_items_expected_max() > 1;
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

std::string Presets() {
  std::string names;
  for (const std::string& name : KnownPresets()) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string ZshArgument(const Flag& flag) {
  switch (flag.takes) {
    case Takes::kNothing: return "";
    case Takes::kAnything: return ":value:";
    case Takes::kNames: return ":value:(" + flag.names + ")";
    case Takes::kFiles: return ":file:_files";
    case Takes::kModels: return ":model: _hbmtune_models";
    case Takes::kDevices: return ":device: _hbmtune_names devices";
    case Takes::kStudies: return ":study: _hbmtune_names studies";
  }
  return "";
}

// What the script of bash does with a word in that place.
std::string BashAction(const Flag& flag) {
  switch (flag.takes) {
    case Takes::kNames: return "words='" + flag.names + "'";
    case Takes::kFiles: return "files='file'";
    case Takes::kModels: return "files='model' words='" + Presets() + "'";
    case Takes::kDevices: return "words=$(_hbmtune_names devices)";
    case Takes::kStudies: return "words=$(_hbmtune_names studies)";
    default: return "return";
  }
}

std::string BashCase(const VerbFlags& verb) {
  std::string words;
  std::string values;
  for (const Flag& flag : verb.flags) {
    words += (words.empty() ? "" : " ") + flag.name;
    if (flag.takes == Takes::kNothing) continue;
    values += "        " + flag.name + ") " + BashAction(flag) + " ;;\n";
  }
  // A positional and a flag may stand in the same place: the dash says which.
  std::string bare = "words='" + words + "'";
  if (verb.positional.takes == Takes::kNames) {
    bare = "words='" + words + " " + verb.positional.names + "'";
  } else if (verb.positional.takes > Takes::kNames) {
    bare = "if [[ $current == -* ]]; then " + bare + "; else " + BashAction(verb.positional) +
           "; fi";
  }
  return "    " + verb.name + ")\n      case \"$previous\" in\n" + values + "        *) " + bare +
         " ;;\n      esac ;;\n";
}

// Names that the daemon knows. Another one than the usual is asked if the line says so.
constexpr const char* kBashNames = R"sh(_hbmtune_names() {
  local i; local -a daemon=()
  for ((i = 2; i < ${#line[@]}; i++)); do
    case "${line[i]}" in
      --local) daemon+=(--local) ;;
      --socket) daemon+=(--socket "${line[i+1]}") ;;
    esac
  done
  "${line[0]}" "$1" --names "${daemon[@]}" 2>/dev/null
}
)sh";

// Bash breaks words at = and at colons, which names of devices have: "--flag=value" comes in as
// three words, "model:mi210" too. Of a name with colons it wants what follows the last one.
constexpr const char* kBashBegin = R"sh(_hbmtune() {
  local i word words='' files=''; local -a line=()
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((i > 0)) && [[ $word == : || ${line[-1]} == *: ]]; then line[-1]+=$word
    else line+=("$word"); fi
  done
  local current=${line[-1]} previous=${line[-2]}
  if [[ $current == '=' ]]; then current=''; fi
  if [[ $previous == '=' ]]; then previous=${line[-3]}; fi
  case "${line[1]}" in
)sh";

constexpr const char* kBashEnd = R"sh(  esac
  case "$files" in
    file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    model) compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; compgen -d -- "$current"
        compgen -f -X '!*.json' -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}") ;;
  esac
}
complete -F _hbmtune hbmtune
)sh";

constexpr const char* kZshNames = R"sh(_hbmtune_names() {
  local -a names
  names=(${(f)"$(hbmtune $1 --names ${(M)words:#--local} 2>/dev/null)"})
  compadd -a names
}
)sh";

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string verbs;
  std::string cases;
  for (const VerbFlags& verb : Describe(app)) {
    verbs += (verbs.empty() ? "" : " ") + verb.name;
    cases += BashCase(verb);
  }
  return "# hbmtune's completion for bash: source <(hbmtune completion bash)\n" +
         std::string(kBashNames) + kBashBegin + cases + "    *) words='" + verbs +
         " --help --version' ;;\n" + kBashEnd;
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
      const char* place = verb.positional.repeated ? "*" : "1";
      cases += std::string(" \\\n      '") + place + ZshArgument(verb.positional) + "'";
    }
    cases += " ;;\n";
  }
  return "#compdef hbmtune\n"
         "# hbmtune's completion for zsh: hbmtune completion zsh > ~/.zfunc/_hbmtune\n" +
         std::string(kZshNames) +
         "_hbmtune_models() {\n  compadd " +
         Presets() + "\n  _files -g \"*.json\"\n}\n" +
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
