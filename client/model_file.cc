#include "client/model_file.h"

#include <filesystem>
#include <stdexcept>
#include <vector>

#include "client/presets.h"
#include "client/text.h"
#include "kernels/core/nearest.h"
#include "kernels/core/regular_file.h"

namespace hbmtune::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 20;  // Hugging Face's own are under 10 KiB

constexpr size_t kMostNameBytes = 4095;  // PATH_MAX without its end

bool LooksLikePath(const std::string& model) {
  std::error_code ignored;
  return model.find('/') != std::string::npos || model.ends_with(".json") ||
         fs::exists(model, ignored);
}

absl::Status NoSuchFile(const fs::path& path) {
  fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::string hint = DidYouMean(path.filename().string(), names);
  if (std::string preset = PresetLike(path.string()); hint.empty() && !preset.empty()) {
    hint = "; models are not fetched from a hub: give --model " + preset +
           ", the preset of that shape, or a path to its config.json";
  }
  return absl::InvalidArgumentError("no such file: " + path.string() + hint);
}

// "Llama-2-13b" for ".../Llama-2-13b/config.json"; the file's own stem for other names.
std::string NameOf(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  bool usual = whole.filename() == "config.json" && whole.parent_path().has_filename();
  return usual ? whole.parent_path().filename().string() : whole.stem().string();
}

}  // namespace

absl::StatusOr<v1::ModelSource> ReadModel(const std::string& model) {
  v1::ModelSource source;
  if (model.empty()) {
    return absl::InvalidArgumentError(
        "--model is missing: give a preset's name or a path to a Hugging Face config.json");
  }
  if (model.size() > kMostNameBytes) {
    return absl::InvalidArgumentError("--model: '" + Truncate(model, 40) + "', of " +
                                      FormatCount(static_cast<int64_t>(model.size())) +
                                      " characters, is longer than any preset's name or path");
  }
  if (!LooksLikePath(model)) {
    source.set_preset(model);
    return source;
  }
  fs::path path = model;
  std::error_code error;
  if (fs::is_directory(path, error)) path /= "config.json";
  if (!fs::exists(path, error)) return NoSuchFile(path);
  std::string text;
  try {
    text = ReadRegularFile(path, kMostBytes);
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(std::string(error.what()) + ", so no config.json");
  }
  // Protobuf refuses to carry other bytes; UTF-16 may pass as UTF-8 but for its zeros.
  if (!IsUtf8(text) || text.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(path.string() +
                                      " is not UTF-8 text, so no config.json");
  }
  source.set_config_json(std::move(text));
  source.set_name(NameOf(path));
  if (!IsUtf8(source.name())) source.set_name("model");  // of a folder with another encoding
  return source;
}

}  // namespace hbmtune::client
