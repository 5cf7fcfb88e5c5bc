#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/train_config.h"
#include "kernels/core/workload.h"
#include "kernels/model/parameters.h"
#include "kernels/program/tape.h"

namespace hbmtune::lowering {

// How every tensor is cut between the ranks: rank r has elements [r · part, (r + 1) · part) of
// each. A part is a multiple of 256 elements, so that the blocks of 8-bit moments are the same for
// any number of ranks; the last parts are shorter, or empty.
struct Partition {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t stage = 0;  // ZeRO's; 0 where there is one rank

  int64_t PartElements(int64_t elements) const;
  // Of rank `r`, without padding.
  int64_t OwnElements(int64_t elements, int64_t r) const;
};

Partition PartitionOf(const Workload& workload, const TrainConfig& config, int64_t rank);

struct Parameter {
  std::string name;
  ParameterRole role = ParameterRole::kEmbedding;
  int64_t layer = -1;
  bool trainable = true;
  Dims shape;
  Tensor weight;         // stage 3: only while it is gathered, unless it is small
  Tensor leaf;           // whom the tape knows: the weight, or this rank's part of it
  Tensor part;           // this rank's part: from stage 1 a view of the weight, in stage 3 its own
  Tensor gradient;       // of this rank's micro-batches; ends when it is reduced or consumed
  Tensor part_gradient;  // from stage 1: of all ranks, this rank's part
  bool resident = true;           // whole in every rank; else stage 3 gathers it before use
  int64_t pending_gradients = 0;  // uses in the graph whose backward has not run

  int64_t elements() const { return ElementCount(shape); }
};

// Where a gradient goes: straight into the parameter's own, so that micro-steps need no temporary.
struct GradientSlot {
  Tensor tensor;
  bool accumulate = false;  // else it is written for the first time
};

// The weights of the model and of its adapters. Addresses of parameters are stable.
class Parameters {
 public:
  Parameters(Tape& tape, const Workload& workload, const TrainConfig& config,
             const Partition& partition);

  // Null where the model has none (a bias, an adapter).
  Parameter* Find(const std::string& name);
  // Throws std::logic_error: the lowering and the parameter table disagree.
  Parameter& At(const std::string& name);
  std::vector<Parameter>& all() { return all_; }

  // Allocates every gradient now, for good.
  void KeepGradients();
  bool keeps_gradients() const { return keeps_gradients_; }
  // The gradient has been consumed: what comes next is written afresh.
  void EndGradient(Parameter& parameter);

  // A recorded node uses the parameter; its backward calls Gradient and Done once.
  void Use(Parameter& parameter);
  GradientSlot Gradient(Parameter& parameter);
  void Done(Parameter& parameter);
  // Called when all of a backward pass's gradients of the parameter are there.
  void set_on_gradient(std::function<void(Parameter&)> callback) {
    on_gradient_ = std::move(callback);
  }

 private:
  void Add(const ParameterEntry& entry, bool trainable, const TrainConfig& config,
           const Partition& partition);

  Tape& tape_;
  std::vector<Parameter> all_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<bool> written_;  // since EndGradient, by parameter
  bool keeps_gradients_ = false;
  std::function<void(Parameter&)> on_gradient_;
};

}  // namespace hbmtune::lowering
