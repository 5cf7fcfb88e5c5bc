#include "kernels/core/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <vector>

namespace hbmtune {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = SIZE_MAX;
  for (const std::string& candidate : candidates) {
    size_t distance = EditDistance(Lower(name), Lower(candidate));
    size_t allowed = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    // Two edits turn any two letters into any others: a name must keep at least one of its own.
    allowed = std::min(allowed, std::max(name.size(), candidate.size()) - 1);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> candidates) {
  std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

}  // namespace hbmtune
