#include "client/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "client/text.h"
#include "kernels/core/nearest.h"
#include "kernels/core/units.h"

namespace hbmtune::client {
namespace {

std::string Replaced(std::string_view text, char from, char to) {
  std::string result(text);
  for (char& c : result) {
    if (c == from) c = to;
  }
  return result;
}

// The whole of `text` as a number, "5e8" and "500_000" included.
std::optional<double> Number(const std::string& text) {
  std::string digits;
  for (char c : text) {
    if (c != '_') digits += c;
  }
  double value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

namespace internal {

Json ParseWhole(const std::string& text, bool bytes) {
  if (bytes) return ParseSize(text, "a size");
  constexpr double kExact = 9007199254740992.0;  // 2^53: over it doubles skip whole numbers
  auto value = Number(text);
  if (!value || std::floor(*value) != *value) {
    throw std::invalid_argument("'" + text + "' is not a whole number");
  }
  if (std::fabs(*value) > kExact) {
    throw std::invalid_argument("'" + text + "' is " + (*value > 0 ? "over " : "under -") +
                                "9007199254740992, which no number here may be");
  }
  return static_cast<int64_t>(*value);
}

Json ParseReal(const std::string& text) {
  auto value = Number(text);
  if (!value) throw std::invalid_argument("'" + text + "' is not a number");
  return *value;
}

Json ParseSwitch(const std::string& text) {
  if (text == "true" || text == "on" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "off" || text == "no" || text == "0") return false;
  throw std::invalid_argument("'" + text + "' is not true or false");
}

void RejectName(const std::string& text, const std::vector<std::string>& names) {
  throw std::invalid_argument("'" + text + "' is not " + JoinWords(names) +
                              DidYouMean(text, names));
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

}  // namespace internal

std::string FlagName(std::string_view path) { return "--" + Replaced(path, '_', '-'); }

std::string PathOfFlag(std::string_view flag) {
  if (flag.starts_with("--")) flag.remove_prefix(2);
  return Replaced(flag, '-', '_');
}

int64_t ParseSize(const std::string& text, const std::string& wanted) {
  const size_t unit = std::min(text.find_first_not_of("0123456789.eE+"), text.size());
  if (auto size = ParseBytes(text)) {
    if (unit < text.size() || *size == 0 || *size >= kMiB) return *size;
    throw std::invalid_argument("'" + text + "' is " + text + " bytes: say " + text + "GiB or " +
                                text + "MiB, or " + text + "B if you mean it");
  }
  // With another number before its unit it is a size: then the number was the fault.
  if (unit > 0 && ParseBytes("1" + text.substr(unit))) {
    throw std::invalid_argument("'" + text + "' is too large");
  }
  throw std::invalid_argument("'" + text + "' is not " + wanted + " (like 512MiB or 1.5GiB)");
}

void AddFlags(CLI::App& app, const std::vector<FlagField>& fields, const std::string& top_group,
              Defaults defaults, GivenFields& given) {
  for (const FlagField& field : fields) {
    CLI::callback_t take = [&given, field](const CLI::results_t& values) {
      try {
        given[field.path] = field.parse(values.back());
      } catch (const std::invalid_argument& error) {
        throw CLI::ValidationError(FlagName(field.path), error.what());
      }
      return true;
    };
    std::string help = field.help;
    bool shown = defaults == Defaults::kShown && !field.default_text.empty();
    if (shown) help += " [" + field.default_text + "]";
    CLI::Option* option = app.add_option(FlagName(field.path), take, help);
    option->type_name(field.type)->group(field.group.empty() ? top_group : field.group);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (field.type == "true|false") option->expected(0, 1)->default_str("true");
  }
}

namespace {

template <class T>
CLI::Option* AddBounded(CLI::App& app, const std::string& name, const std::string& help, T& value,
                        T least, T most) {
  constexpr bool kWhole = std::is_integral_v<T>;
  CLI::callback_t take = [&value, name, least, most](const CLI::results_t& values) {
    const std::string& text = values.back();
    std::string fault;
    try {
      value = (kWhole ? internal::ParseWhole(text, false) : internal::ParseReal(text)).get<T>();
      auto bound = [](T limit) { return internal::NumberText(static_cast<double>(limit)); };
      if (value < least) fault = "'" + text + "' is under " + bound(least);
      if (value > most) fault = "'" + text + "' is over " + bound(most);
    } catch (const std::invalid_argument& error) {
      fault = error.what();
    }
    if (!fault.empty()) throw CLI::ValidationError(name, fault);
    return true;
  };
  CLI::Option* option = app.add_option(name, take, help);
  option->type_name(kWhole ? "INT" : "NUMBER");
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace

CLI::Option* AddNumber(CLI::App& app, const std::string& name, const std::string& help,
                       int64_t& value, int64_t least, int64_t most) {
  return AddBounded(app, name, help, value, least, most);
}

CLI::Option* AddNumber(CLI::App& app, const std::string& name, const std::string& help,
                       double& value, double least, double most) {
  return AddBounded(app, name, help, value, least, most);
}

CLI::Option* AddChoice(CLI::App& app, const std::string& name,
                       const std::vector<std::string>& choices, const std::string& help,
                       std::string& value) {
  std::string type;
  for (const std::string& choice : choices) type += (type.empty() ? "" : "|") + choice;
  CLI::callback_t take = [&value, name, choices](const CLI::results_t& values) {
    value = values.back();
    if (std::find(choices.begin(), choices.end(), value) != choices.end()) return true;
    throw CLI::ValidationError(name, "'" + value + "' is not " + JoinWords(choices) +
                                         DidYouMean(value, choices));
  };
  CLI::Option* option = app.add_option(name, take, help);
  option->type_name(type)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return option;
}

}  // namespace hbmtune::client
