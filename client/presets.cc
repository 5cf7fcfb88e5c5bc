#include "client/presets.h"

#include <cctype>

namespace hbmtune::client {
namespace {

// Letters and digits alone, in small: "Llama-2-7b" and "llama2-7b" are spelt alike.
std::string Letters(const std::string& text) {
  std::string letters;
  for (unsigned char c : text) {
    if (std::isalnum(c)) letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

}  // namespace

const std::vector<std::string>& KnownPresets() {
  static const std::vector<std::string> kNames = {
      "falcon-7b",  "gpt2",      "gpt2-xl",    "llama2-13b", "llama2-70b", "llama2-7b",
      "llama3-70b", "llama3-8b", "mistral-7b", "qwen2-7b",   "tiny-llama"};
  return kNames;
}

std::string PresetLike(const std::string& model) {
  const std::string name = Letters(model.substr(model.rfind('/') + 1));
  std::string best;
  for (const std::string& preset : KnownPresets()) {
    const size_t at = name.find(Letters(preset));
    // A digit after it makes another name: gpt2 is not in "gpt-20b".
    const size_t end = at + Letters(preset).size();
    const bool whole = at != std::string::npos &&
                       (end == name.size() || !std::isdigit(static_cast<unsigned char>(name[end])));
    if (whole && preset.size() > best.size()) best = preset;
  }
  return best;
}

}  // namespace hbmtune::client
