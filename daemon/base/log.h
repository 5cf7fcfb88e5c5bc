#pragma once

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/core/visit.h"

namespace spdlog {
class logger;
}

namespace hbmtune::daemon {

enum class LogFormat : uint8_t { kLogfmt, kJson };
enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

}  // namespace hbmtune::daemon

template <>
struct hbmtune::EnumNames<hbmtune::daemon::LogFormat> {
  static constexpr std::array<std::string_view, 2> kNames = {"logfmt", "json"};
};
template <>
struct hbmtune::EnumNames<hbmtune::daemon::LogLevel> {
  static constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
};

namespace hbmtune::daemon {

// A key and its value: {"study", 7}.
struct LogField {
  template <class T>
  LogField(std::string_view field_key, const T& field_value)
      : key(field_key), value(absl::StrCat(field_value)) {}
  LogField(std::string_view field_key, const absl::Status& status)
      : key(field_key), value(std::string(status.message())) {}
  LogField(std::string_view field_key, std::string_view text) : key(field_key), value(text) {}

  std::string_view key;
  std::string value;
};
using LogFields = std::initializer_list<LogField>;

// Lines of `time level message key=value …` in logfmt or JSON. Any thread.
class Log {
 public:
  // To stderr, or appended to `file` when it is not empty (stderr if it cannot be opened).
  Log(LogFormat format, LogLevel level, const std::string& file);
  ~Log();

  void SetLevel(LogLevel level) const;

  void Debug(std::string_view message, LogFields fields = {}) const;
  void Info(std::string_view message, LogFields fields = {}) const;
  void Warning(std::string_view message, LogFields fields = {}) const;
  void Error(std::string_view message, LogFields fields = {}) const;

 private:
  void Write(LogLevel level, std::string_view message, LogFields fields) const;

  const LogFormat format_;
  std::shared_ptr<spdlog::logger> logger_;
};

// One line, without its end: for Log, and for tests.
std::string FormatLogLine(LogFormat format, std::string_view message, LogFields fields);

}  // namespace hbmtune::daemon
