#include "daemon/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace hbmtune::daemon {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  constexpr std::array kLevels = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                  spdlog::level::err};
  return kLevels[static_cast<size_t>(level)];
}

// A log file that cannot be written is no reason to be silent: nothing then.
spdlog::sink_ptr FileSink(const std::string& file) {
  try {
    return std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
  } catch (const spdlog::spdlog_ex&) {
    return nullptr;
  }
}

// As JSON, which replaces what is not UTF-8 (a probe's last words may be anything).
std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool NeedsQuotes(std::string_view text) {
  return text.empty() || std::any_of(text.begin(), text.end(), [](unsigned char c) {
           return c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f;
         });
}

}  // namespace

std::string FormatLogLine(LogFormat format, std::string_view message, LogFields fields) {
  const bool json = format == LogFormat::kJson;
  std::string line = absl::StrCat(json ? "\"msg\":" : "msg=", Quoted(message));
  for (const LogField& field : fields) {
    if (json) {
      absl::StrAppend(&line, ",", Quoted(field.key), ":", Quoted(field.value));
    } else {
      const bool quotes = NeedsQuotes(field.value);
      absl::StrAppend(&line, " ", std::string(field.key), "=",
                      quotes ? Quoted(field.value) : field.value);
    }
  }
  return line;
}

Log::Log(LogFormat format, LogLevel level, const std::string& file)
    : format_(format) {
  spdlog::sink_ptr sink = file.empty() ? nullptr : FileSink(file);
  const bool lost = sink == nullptr && !file.empty();
  if (sink == nullptr) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  logger_ = std::make_shared<spdlog::logger>("hbmtuned", std::move(sink));
  logger_->set_level(SpdlogLevel(level));
  logger_->flush_on(spdlog::level::debug);
  logger_->set_pattern(format == LogFormat::kJson
                           ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                           : "time=%Y-%m-%dT%H:%M:%S.%e%z level=%l %v");
  if (lost) Error("the log file cannot be written: the log goes to stderr", {{"log_file", file}});
}

Log::~Log() = default;

void Log::SetLevel(LogLevel level) const { logger_->set_level(SpdlogLevel(level)); }

void Log::Write(LogLevel level, std::string_view message, LogFields fields) const {
  if (!logger_->should_log(SpdlogLevel(level))) return;
  logger_->log(SpdlogLevel(level), "{}", FormatLogLine(format_, message, fields));
}

void Log::Debug(std::string_view message, LogFields fields) const {
  Write(LogLevel::kDebug, message, fields);
}
void Log::Info(std::string_view message, LogFields fields) const {
  Write(LogLevel::kInfo, message, fields);
}
void Log::Warning(std::string_view message, LogFields fields) const {
  Write(LogLevel::kWarning, message, fields);
}
void Log::Error(std::string_view message, LogFields fields) const {
  Write(LogLevel::kError, message, fields);
}

}  // namespace hbmtune::daemon
