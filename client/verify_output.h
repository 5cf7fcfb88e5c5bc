#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/output_json.h"
#include "kernels/core/verification.h"

// What `verify` prints of a recording.
namespace hbmtune::client {

// Of one run. `refusal` says why it could not be compared; then only its name is known.
struct RunVerificationOutput : Verification {
  bool equal = false;
  std::optional<std::string> refusal;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    Verification::Visit(self, v);
    v(Field{"equal", "equal within the tolerance"}, self.equal);
    v(Field{"refusal", "why it could not be compared"}, self.refusal);
  }
};

struct VerifyOutput {
  double tolerance_ratio = 0;
  bool equal = false;
  int64_t runs = 0;
  int64_t equal_runs = 0;
  int64_t same_event_runs = 0;
  int64_t refused_runs = 0;
  std::vector<RunVerificationOutput> verifications;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"tolerance_ratio", "largest difference that counts as equal"}, self.tolerance_ratio);
    v(Field{"equal", "every run is equal within the tolerance"}, self.equal);
    v(Field{"runs", "runs of the recording"}, self.runs);
    v(Field{"equal_runs", "of these, equal within the tolerance"}, self.equal_runs);
    v(Field{"same_event_runs", "of these, with the same events in the same order"},
      self.same_event_runs);
    v(Field{"refused_runs", "of these, what could not be compared"}, self.refused_runs);
    v(Field{"verifications", "each run"}, self.verifications);
  }
};

}  // namespace hbmtune::client
