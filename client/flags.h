#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/json.h"
#include "kernels/core/visit.h"

// Every field of a config struct as a flag: its name with dashes, dots for nesting, help and
// default from its visit ("zero.reduce_bucket_size" is --zero.reduce-bucket-size).
namespace hbmtune::client {

// One leaf of a config struct.
struct FlagField {
  std::string path;          // "zero.stage"
  std::string group;         // "zero: partitioning over the ranks, …"; empty for a field on top
  std::string help;          // from the visit
  std::string type;          // "INT", "NUMBER", "BYTES", "TEXT", or the values: "none|stream"
  std::string default_text;  // "" for an empty string
  // The value as JSON; throws std::invalid_argument that says what the value may be.
  std::function<Json(const std::string&)> parse;
};

// Fields that somebody gave, by path.
using GivenFields = std::map<std::string, Json>;

// "zero.reduce_bucket_size" → "--zero.reduce-bucket-size".
std::string FlagName(std::string_view path);

// "--zero.reduce-bucket-size", "zero.reduce-bucket-size" → "zero.reduce_bucket_size".
std::string PathOfFlag(std::string_view flag);

// Whether help says what a field is when nobody gives it. A study searches such a field, so
// there the default would mislead.
enum class Defaults { kShown, kHidden };

// Adds the flags; what the command line gives lands in `given`, which must outlive the parse.
// Fields on top stand under `top_group`, nested ones under their own.
void AddFlags(CLI::App& app, const std::vector<FlagField>& fields, const std::string& top_group,
              Defaults defaults, GivenFields& given);

// A size in bytes. Throws std::invalid_argument: '`text`' is too large, is not `wanted` (like …),
// or is a small number without a unit: nobody means 64 bytes by "64". 0 is 0; "64B" is meant.
int64_t ParseSize(const std::string& text, const std::string& wanted);

// A flag or positional that takes one of a few names.
CLI::Option* AddChoice(CLI::App& app, const std::string& name,
                       const std::vector<std::string>& choices, const std::string& help,
                       std::string& value);

// A flag that takes a number within the bounds.
CLI::Option* AddNumber(CLI::App& app, const std::string& name, const std::string& help,
                       int64_t& value, int64_t least, int64_t most = int64_t{1} << 53);
CLI::Option* AddNumber(CLI::App& app, const std::string& name, const std::string& help,
                       double& value, double least, double most);

// The leaves of a visited struct, in the order of its visit; a field called as in `leave_out` is
// passed over.
template <class T>
std::vector<FlagField> FlagFields(std::string_view leave_out = "");

namespace internal {

Json ParseWhole(const std::string& text, bool bytes);
Json ParseReal(const std::string& text);
Json ParseSwitch(const std::string& text);
// Throws: '`text`' is not one of `names` (did you mean …?).
[[noreturn]] void RejectName(const std::string& text, const std::vector<std::string>& names);
std::string NumberText(double value);

template <NamedEnum E>
std::vector<std::string> NamesOf() {
  return {EnumNames<E>::kNames.begin(), EnumNames<E>::kNames.end()};
}

template <class T>
void DescribeLeaf(FlagField& field, const T& value) {
  if constexpr (NamedEnum<T>) {
    for (std::string_view name : EnumNames<T>::kNames) {
      field.type += (field.type.empty() ? "" : "|") + std::string(name);
    }
    field.default_text = Name(value);
    field.parse = [](const std::string& text) -> Json {
      if (!ParseEnum<T>(text)) RejectName(text, NamesOf<T>());
      return text;
    };
  } else if constexpr (std::is_same_v<T, bool>) {
    field.type = "true|false";
    field.default_text = value ? "true" : "false";
    field.parse = ParseSwitch;
  } else if constexpr (std::is_integral_v<T>) {
    bool bytes = field.path.ends_with("_bytes");
    field.type = bytes ? "BYTES" : "INT";
    field.default_text = std::to_string(value);
    field.parse = [bytes](const std::string& text) { return ParseWhole(text, bytes); };
  } else if constexpr (std::is_floating_point_v<T>) {
    field.type = "NUMBER";
    field.default_text = NumberText(value);
    field.parse = ParseReal;
  } else {
    static_assert(std::is_same_v<T, std::string>, "a flag for this type is not known");
    field.type = "TEXT";
    field.default_text = value;
    field.parse = [](const std::string& text) -> Json { return text; };
  }
}

struct FlagCollector {
  std::vector<FlagField>& fields;
  std::string_view leave_out;
  std::string prefix;
  std::string group;

  template <class T>
  void operator()(const Field& field, const T& value) {
    if (field.name == leave_out) return;
    std::string path = prefix + std::string(field.name);
    if constexpr (Visited<T>) {
      std::string title = FlagName(path).substr(2) + ": " + std::string(field.help);
      FlagCollector inner{fields, leave_out, path + ".", title};
      T::Visit(value, inner);
    } else {
      FlagField& leaf = fields.emplace_back();
      leaf.path = path;
      leaf.group = group;
      leaf.help = field.help;
      DescribeLeaf(leaf, value);
    }
  }
};

}  // namespace internal

template <class T>
std::vector<FlagField> FlagFields(std::string_view leave_out) {
  std::vector<FlagField> fields;
  internal::FlagCollector collector{fields, leave_out, "", ""};
  const T defaults{};
  T::Visit(defaults, collector);
  return fields;
}

}  // namespace hbmtune::client
