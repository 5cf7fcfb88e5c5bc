#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/lowering/hf/aten.h"

namespace hbmtune::lowering {

// A module of Python's: what stands for it, and the parameters of its own (a container's: none).
struct HookedModule {
  const void* identity;
  std::vector<Tensor> weights;
};

// Told where modules begin and end, forward and backward: DeepSpeed's hooks on every module.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  // Before the module computes; its input with what runs after its backward pass. Nothing runs
  // where the input is empty (passed by keyword, hooks do not see it) or wants no gradient.
  virtual Tensor Enter(const HookedModule& module, Tensor input) = 0;
  // After it; the output with what runs before its backward pass.
  virtual Tensor Leave(const HookedModule& module, Tensor output) = 0;
  // While it computes, the module looks at a weight of another.
  virtual void Read(const HookedModule& module, const Tensor& weight) = 0;
  virtual bool IsWeight(const Tensor& tensor) const = 0;
};

// Stage 3's weights (partitioned_param_coordinator.py of 0.19): each rank keeps a share; a weight
// is gathered for the module that needs it, or ahead of it, and released when its next use is far.
// The first pass only learns the order of modules; once it is known small weights are never
// given up, but for the optimizer's step.
class WeightGatherer final : public ModuleHooks {
 public:
  WeightGatherer(Aten& aten, const ZeroConfig& config, int64_t rank, int64_t ranks)
      : aten_(aten), config_(config), rank_(rank), ranks_(ranks) {}

  // `share` is this rank's part, in memory as long as the gatherer; `parameter` refers to it while
  // it is not gathered.
  void Add(const Tensor& parameter, Tensor share, bool persistent);
  void SetShare(const Tensor& parameter, Tensor share);
  const Tensor& ShareOf(const Tensor& parameter) const {
    return weights_[IndexOf(parameter)].share;
  }
  // A collective, behind the latest of any stream: all are of one process group, whose collectives
  // run on one stream (PyTorch's ProcessGroupNCCL).
  void Collect(CollectiveKind kind, const Tensor& from, const Tensor& to);
  // A new pass over the model begins.
  void Reset();
  // A backward pass ends, and the host has waited for it: modules whose input wanted no gradient
  // have not let go of their weights.
  void ReleaseLeftovers();
  // Around the optimizer's step: no weight is whole during it, small ones are after it.
  void ReleaseAll();
  void GatherPersistent();
  // Around the saving of a module's weights (GatheredParameters with modifier_rank 0): all of them
  // whole at once, then given back to their shares.
  void GatherForSave(const std::vector<Tensor>& weights);
  void ShareAgain(const std::vector<Tensor>& weights);

  Tensor Enter(const HookedModule& module, Tensor input) override;
  Tensor Leave(const HookedModule& module, Tensor output) override;
  // A weight that is not there is gathered, and from then on counts as the module's own, too.
  void Read(const HookedModule& module, const Tensor& weight) override;
  bool IsWeight(const Tensor& tensor) const override { return Find(tensor) < weights_.size(); }

 private:
  // One all-gather: of a single weight straight into its place, of several into one flat tensor
  // for each dtype, from which they are copied when the first of them is waited for.
  struct Handle {
    std::map<Dtype, Tensor> flats;  // the ranks' shares of all weights, rank after rank
    std::vector<size_t> weights;
    bool copied = false;
  };
  enum class Status { kShared, kInFlight, kWhole };
  struct Module {
    std::vector<size_t> weights;
    std::set<size_t> recomputed;  // frozen ones gathered for a recomputation in its backward pass
  };
  struct Weight {
    Tensor parameter, share;
    Dims shape;
    int64_t elements = 0;
    bool persistent = false;
    Status status = Status::kShared;
    std::shared_ptr<Handle> in_flight;
    int64_t last_use = 0;         // known to the prefetcher
    std::set<const Module*> users;  // that have not let go of it
  };
  struct Use {
    size_t weight;
    int64_t step;
  };

  Module& ModuleOf(const HookedModule& module);
  size_t Find(const Tensor& parameter) const;  // weights_.size() if it is none
  size_t IndexOf(const Tensor& parameter) const;
  void CompareOrder();
  void WaitForFetch(size_t weight);
  void Synchronize();
  void Fetch(Module& module, bool forward);
  void SkipQueue(const Module& module);
  void Prefetch();
  void Gather(const std::vector<size_t>& weights);
  void GatherNow(Weight& weight);
  void WaitFor(size_t weight);
  // From a flat tensor, in which each rank's shares of all weights stand together.
  void CopyWhole(const Weight& weight, const Tensor& flat, int64_t begin, const Tensor& whole);
  void Release(Module& module, bool forward);
  void ReleaseWeight(Weight& weight);
  // Of a module's weights those whose next use is far.
  const std::vector<size_t>& Releasable(const Module& module);
  bool NeededSoon(size_t weight) const;
  void Partition(Weight& weight);

  Aten& aten_;
  const ZeroConfig& config_;
  const int64_t rank_, ranks_;
  std::vector<Weight> weights_;
  std::unordered_map<const void*, Module> modules_;
  std::vector<const Module*> order_;
  bool complete_ = false;
  std::deque<EventId> fetches_;  // that the host has not waited for, oldest first
  std::optional<EventId> last_collective_;
  StreamId last_stream_ = kComputeStream;
  std::deque<Use> queue_;
  int64_t step_ = 0;
  int64_t available_elements_ = 0;
  std::vector<Module*> in_backward_;  // fetched in the backward pass and not released, oldest first
  // DeepSpeed decides once for each module and step, and remembers it.
  std::map<std::pair<const Module*, int64_t>, std::vector<size_t>> releasable_;
};

}  // namespace hbmtune::lowering
