#include "daemon/services/kept_answers.h"

namespace hbmtune::daemon {

std::optional<grpc::ByteBuffer> KeptAnswers::Find(const std::string& request,
                                                  absl::Duration now) const {
  absl::MutexLock lock(&mutex_);
  auto found = kept_.find(request);
  if (found == kept_.end()) return std::nullopt;
  const Kept& kept = found->second;
  if (now - kept.since > kLongest || store_.LastChange(kept.question) > kept.changes) {
    return std::nullopt;
  }
  return kept.answer;
}

void KeptAnswers::Keep(const std::string& request, const std::string& question, int64_t changes,
                       absl::Duration now, const grpc::ByteBuffer& answer) {
  if (request.size() > kLongestRequest) return;
  absl::MutexLock lock(&mutex_);
  if (kept_.size() >= kMostKept && !kept_.contains(request)) kept_.clear();
  kept_[request] = {question, changes, now, answer};
}

}  // namespace hbmtune::daemon
