#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/lowering/fused/context.h"

namespace hbmtune::lowering {

// The parameters that one micro-batch gathers, in the order in which it needs them: indices in
// Parameters::all(), one each time.
using GatherOrder = std::vector<size_t>;

// ZeRO stage 3: weights are cut between the ranks, and whole only around their use. With a known
// order of uses (of a dry run, as DeepSpeed traces its first step):
//   - a weight that is used again within max_reuse_distance elements stays;
//   - with overlap_comm the next weights are gathered ahead on the communication stream, at most
//     prefetch_bucket_size elements before their use and max_live_parameters in all.
// What is needed now is gathered whatever the limits say, after weights that only stayed have gone.
class GatheredWeights {
 public:
  // Without an order nothing stays and nothing is gathered ahead.
  GatheredWeights(Context& context, const Partition& partition, GatherOrder order);

  // A micro-batch begins: the order begins again.
  void Begin();
  // The weight is whole from here to Release. Nothing for what is always whole.
  void Need(Parameter& parameter);
  void Release(Parameter& parameter);
  // The micro-batch is over: nothing is whole any more.
  void End();

  // What the latest micro-batch needed.
  const GatherOrder& needed() const { return needed_; }

 private:
  // Of one parameter, while its weight is whole or on its way.
  struct Whole {
    bool arriving = false;  // not waited for yet
    bool ahead = false;     // gathered ahead of its use
    bool in_use = false;
    EventId arrived = 0;
    size_t next_use = 0;  // position in the order; its end for never
  };

  size_t IndexOf(const Parameter& parameter) const;
  void Fetch(size_t index);
  void FetchAhead();
  void Await(size_t index);
  void Drop(size_t index);
  void MakeRoom(int64_t elements);
  int64_t ElementsUsedUntil(size_t position) const;

  Context& context_;
  Partition partition_;
  GatherOrder order_;
  std::vector<size_t> next_use_;        // by position: where the same parameter is used next
  std::vector<int64_t> elements_used_;  // by position: of all uses before it
  GatherOrder needed_;
  std::vector<Whole> wholes_;  // by parameter
  int64_t live_elements_ = 0;
  int64_t ahead_elements_ = 0;
};

}  // namespace hbmtune::lowering
