#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/lowering/hf/aten.h"

namespace hbmtune::lowering {

// Told where modules begin and end, forward and backward: DeepSpeed's hooks on every module.
// Containers have no parameters of their own; they count as steps all the same.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  // Before a module with this weight computes; the input with what runs after its backward pass.
  virtual Tensor Enter(const Tensor& weight, Tensor input) = 0;
  // After it; the output with what runs before its backward pass.
  virtual Tensor Leave(const Tensor& weight, Tensor output) = 0;
  virtual void EnterContainer() = 0;
  virtual Tensor LeaveContainer(Tensor output) = 0;
};

// Stage 3's weights (partitioned_param_coordinator.py of 0.19): each rank keeps a share; a weight
// is gathered for the module that needs it, or ahead of it, and released when its next use is far.
// The first pass only learns the order of modules. Small parameters are never given up.
class WeightGatherer final : public ModuleHooks {
 public:
  WeightGatherer(Aten& aten, const ZeroConfig& config, int64_t ranks)
      : aten_(aten), config_(config), ranks_(ranks) {}

  // `share` is this rank's part, in memory as long as the gatherer; `parameter` refers to it while
  // it is not gathered.
  void Add(const Tensor& parameter, Tensor share, bool persistent);
  void SetShare(const Tensor& parameter, Tensor share);
  // A new pass over the model begins.
  void Reset();
  void ReleaseAll();

  Tensor Enter(const Tensor& weight, Tensor input) override;
  Tensor Leave(const Tensor& weight, Tensor output) override;
  void EnterContainer() override { Fetch(kNone); }
  Tensor LeaveContainer(Tensor output) override;

 private:
  static constexpr size_t kNone = ~size_t{0};

  // One all-gather: of a single weight straight into its place, of several into one flat tensor
  // from which each is copied when the first of them is waited for.
  struct Handle {
    Tensor flat;
    std::vector<size_t> weights;
    bool copied = false;
  };
  struct Weight {
    Tensor parameter, share;
    Dims shape;
    int64_t elements = 0;
    bool persistent = false;
    bool gathered = false;  // or on its way
    std::shared_ptr<Handle> in_flight;
    int64_t last_use = 0;  // known to the prefetcher
  };
  struct Use {
    size_t weight;
    int64_t step;
  };

  size_t IndexOf(const Tensor& parameter) const;
  void Fetch(size_t weight);
  void SkipQueue(size_t weight);
  void Prefetch();
  void Gather(const std::vector<size_t>& weights);
  void WaitFor(size_t weight);
  void Release(size_t weight);
  bool NeededSoon(size_t weight) const;
  void Partition(Weight& weight);

  Aten& aten_;
  const ZeroConfig& config_;
  const int64_t ranks_;
  std::vector<Weight> weights_;
  std::vector<size_t> order_;  // of modules, by their weight; kNone for containers
  bool complete_ = false;
  std::deque<Use> queue_;
  int64_t step_ = 0;
  int64_t available_elements_ = 0;
};

}  // namespace hbmtune::lowering
