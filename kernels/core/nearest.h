#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hbmtune {

// The candidate nearest to a mistyped name by edit distance (case ignored, a swap of neighbours
// counts once), or "" if none is near enough to be meant: at most a third of the longer name's
// letters, two for short names.
std::string NearestName(std::string_view name, std::span<const std::string> candidates);

// " (did you mean X?)" or "": to end a sentence that rejects a name.
std::string DidYouMean(std::string_view name, std::span<const std::string> candidates);

}  // namespace hbmtune
