#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/synchronization/mutex.h>
#include <absl/time/time.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/store/study_store.h"

namespace hbmtune::daemon {

// Answers to the same request, kept as the bytes that are sent (a copy shares them) until a study
// of their question has changed (StudyStore::LastChange) or ten seconds have passed (a device's
// profile may have). A request is its bytes. Any thread.
class KeptAnswers {
 public:
  explicit KeptAnswers(const StudyStore& store) : store_(store) {}

  // Nothing if there is none that is still right.
  std::optional<grpc::ByteBuffer> Find(const std::string& request, absl::Duration now) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `changes` (of the store) and `now` as they were before the answer was worked out. Not of a
  // request over 16 KiB, ten times a config.json: a thousand of 4 MiB would be all the memory.
  void Keep(const std::string& request, const std::string& question, int64_t changes,
            absl::Duration now, const grpc::ByteBuffer& answer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  static constexpr size_t kMostKept = 1000;
  static constexpr size_t kLongestRequest = 16 << 10;
  static constexpr absl::Duration kLongest = absl::Seconds(10);
  struct Kept {
    std::string question;
    int64_t changes;
    absl::Duration since;
    grpc::ByteBuffer answer;
  };

  const StudyStore& store_;
  mutable absl::Mutex mutex_;
  std::unordered_map<std::string, Kept> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hbmtune::daemon
