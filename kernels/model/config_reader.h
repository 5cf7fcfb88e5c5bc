#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hbmtune {

// Typed look-ups in one config.json, errors as std::invalid_argument that names model and key.
// A key that is null counts as absent; IsNull tells the two apart where Transformers does.
class ConfigReader {
 public:
  // Throws if the text is not JSON or not an object.
  ConfigReader(const std::string& json_text, std::string name);

  // The first of the keys that is there: configs of one model come in several spellings.
  std::optional<int64_t> FindInteger(std::initializer_list<const char*> keys) const;
  std::optional<std::string> FindString(const char* key) const;
  std::optional<std::string> FirstArchitecture() const;  // throws unless a list of strings

  int64_t Integer(std::initializer_list<const char*> keys) const;  // throws if absent
  double Number(std::initializer_list<const char*> keys, double otherwise) const;
  bool Bool(std::initializer_list<const char*> keys, bool otherwise) const;

  // rope_theta of the new layout ({"rope_parameters": {"rope_theta": …}}) or the old one.
  double RopeTheta() const;
  bool Has(const char* key) const { return Find({key}) != nullptr; }
  bool IsNull(const char* key) const { return json_.contains(key) && json_[key].is_null(); }
  // Elements of a list of strings that equal `value`, or nothing if the key is absent.
  std::optional<int64_t> CountInList(const char* key, std::string_view value) const;

  [[noreturn]] void Fail(const std::string& why) const;

 private:
  const nlohmann::json* Find(std::initializer_list<const char*> keys,
                             const char** found = nullptr) const;

  nlohmann::json json_;
  std::string name_;
};

}  // namespace hbmtune
