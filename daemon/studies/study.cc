#include "daemon/studies/study.h"

#include <absl/strings/str_cat.h>

#include <charconv>
#include <utility>

#include "kernels/core/hash.h"

namespace hbmtune::daemon {
namespace {

std::optional<int64_t> ParseId(std::string_view text) {
  int64_t id = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || id <= 0) return std::nullopt;
  return id;
}

// Takes `prefix` off the front of `text`, if it is there.
bool Consume(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::string StudyName(int64_t study_id) { return absl::StrCat("studies/", study_id); }

std::string TrialName(int64_t study_id, int64_t number) {
  return absl::StrCat(StudyName(study_id), "/trials/", number);
}

std::optional<int64_t> ParseStudyName(std::string_view name) {
  Consume(name, "studies/");
  return ParseId(name);
}

std::optional<std::pair<int64_t, int64_t>> ParseTrialName(std::string_view name) {
  if (!Consume(name, "studies/")) return std::nullopt;
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  auto study = ParseId(name.substr(0, slash));
  name.remove_prefix(slash);
  if (!Consume(name, "/trials/")) return std::nullopt;
  auto number = ParseId(name);
  if (!study || !number) return std::nullopt;
  return std::pair(*study, *number);
}

std::string WorkloadKey(const Workload& workload) {
  Workload nameless = workload;
  nameless.model.name.clear();
  return CanonicalHash(nameless);
}

std::string RequestHash(const StudySpec& spec) {
  std::string text = CanonicalText(spec);
  for (const auto& [path, value] : spec.pins) absl::StrAppend(&text, "\n", path, "=", value);
  return HashText(text);
}

}  // namespace hbmtune::daemon
