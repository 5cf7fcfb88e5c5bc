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

struct Parameter {
  std::string name;
  ParameterRole role = ParameterRole::kEmbedding;
  int64_t layer = -1;
  bool trainable = true;
  Tensor weight;
  int64_t pending_gradients = 0;  // uses in the graph whose backward has not run
};

// Where a gradient goes: straight into .grad, so that micro-steps need no temporary.
struct GradientSlot {
  Tensor tensor;
  bool accumulate = false;  // else it is written for the first time
};

// The weights of the model and of its adapters. Addresses of parameters are stable.
class Parameters {
 public:
  Parameters(Tape& tape, const Workload& workload, const TrainConfig& config);

  // Null where the model has none (a bias, an adapter).
  Parameter* Find(const std::string& name);
  // Throws std::logic_error: the lowering and the parameter table disagree.
  Parameter& At(const std::string& name);
  std::vector<Parameter>& all() { return all_; }

  // Allocates every gradient now, for good.
  void KeepGradients();
  // A new step begins: gradients are written afresh; those not kept are freed by whoever
  // consumed them.
  void BeginStep();

  // A recorded node uses the parameter; its backward calls Gradient and Done once.
  void Use(Parameter& parameter);
  GradientSlot Gradient(Parameter& parameter);
  void Done(Parameter& parameter);
  // Called when all of a backward pass's gradients of the parameter are there.
  void set_on_gradient(std::function<void(Parameter&)> callback) {
    on_gradient_ = std::move(callback);
  }
  bool keeps_gradients() const { return keeps_gradients_; }

 private:
  void Add(const ParameterEntry& entry, bool trainable, Dtype dtype);

  Tape& tape_;
  std::vector<Parameter> all_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<bool> written_;  // this step, by parameter
  bool keeps_gradients_ = false;
  std::function<void(Parameter&)> on_gradient_;
};

}  // namespace hbmtune::lowering
