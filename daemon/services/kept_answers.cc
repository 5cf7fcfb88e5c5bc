#include "daemon/services/kept_answers.h"

#include <utility>

namespace hbmtune::daemon {

KeptAnswers::Answer KeptAnswers::Find(const std::string& question, int64_t version,
                                      absl::Duration now) const {
  absl::MutexLock lock(&mutex_);
  auto found = kept_.find(question);
  if (found == kept_.end() || found->second.version != version ||
      now - found->second.since > kLongest) {
    return nullptr;
  }
  return found->second.answer;
}

void KeptAnswers::Keep(const std::string& question, int64_t version, absl::Duration now,
                       Answer answer) {
  absl::MutexLock lock(&mutex_);
  if (kept_.size() >= kMostKept && !kept_.contains(question)) kept_.clear();
  kept_[question] = {version, now, std::move(answer)};
}

}  // namespace hbmtune::daemon
