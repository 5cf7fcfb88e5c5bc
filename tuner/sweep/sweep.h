#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/core/result.h"
#include "kernels/core/train_config.h"
#include "kernels/core/visit.h"
#include "tuner/search/history.h"
#include "tuner/space/space.h"

namespace hbmtune::tuner {

struct SweptConfig {
  TrainConfig train_config;
  Estimate estimate;

  template <class Self, class V>
  static void Visit(Self& self, V&& v) {
    v(Field{"train_config", "the choice of every tunable"}, self.train_config);
    v(Field{"estimate", "what the modelled device says"}, self.estimate);
  }
};

// The configs that fit and that no other beats in both speed and memory. It holds nothing else, so
// a sweep of any size takes little memory.
class ParetoFront {
 public:
  // Whether the front changed. One that equals another in both figures is not kept beside it.
  bool Add(const SweptConfig& swept);
  // Fastest first, which is most memory first.
  std::vector<SweptConfig> Sorted() const;
  size_t size() const { return front_.size(); }

 private:
  std::map<int64_t, SweptConfig> front_;  // by used bytes; speed grows along
};

// Calls `visit` with configs until it returns false.
using Visitor = std::function<bool(const TrainConfig&)>;
using ConfigSource = std::function<void(const Visitor& visit)>;

// Every combination of the values of a grid over a base. Unlike a Space it holds combinations that
// are not legal: they are visited too, for whoever counts them.
class Grid {
 public:
  // INVALID_ARGUMENT names a path that is no tunable or a value that it cannot have, and a grid of
  // more than `kMostConfigs`.
  static absl::StatusOr<Grid> Create(const Workload& workload, const TrainConfig& base,
                                     const Pins& values);
  static constexpr int64_t kMostConfigs = 10'000'000;

  void ForEach(const Visitor& visit) const;
  int64_t Count() const;

 private:
  bool Descend(size_t depth, const TrainConfig& config, const Visitor& visit) const;

  Workload workload_;
  TrainConfig base_;
  std::vector<Axis> axes_;
  bool derive_accumulation_ = false;  // from the global batch
};

// Estimates all that `source` visits on `threads` threads, and hands each to `take`, one at a time
// in no order that is promised, until `take` returns false. At most a few hundred configs are on
// their way at once. Returns when everything is done or stopped.
using Take = std::function<bool(const TrainConfig&, const absl::StatusOr<Estimate>&)>;
void EstimateAll(const ConfigSource& source, const Estimator& estimator, size_t threads,
                 const Take& take);

}  // namespace hbmtune::tuner
