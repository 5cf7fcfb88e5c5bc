#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/core/workload.h"
#include "kernels/lowering/hf/aten.h"

namespace hbmtune::lowering {

// A parameter by its Transformers name; frozen ones want no gradient.
struct HfParameter {
  std::string name;
  Tensor tensor;
  bool trained = true;
  bool decayed = true;  // in Trainer's group with weight decay
};

// Stands for a module that has no parameters of its own; only its address matters.
struct ModuleTag {};

// torch.nn.Linear or GPT-2's Conv1D, with PEFT's LoRA around it where it is a target.
struct LinearModule {
  Tensor weight, bias;
  Tensor lora_a, lora_b;
  double lora_scaling = 1;
  double lora_dropout = 0;
  bool conv = false;  // weight is [in, out]
  bool falcon = false;  // x @ weight.T, written out
  ModuleTag lora, dropout;  // PEFT's around all of it, and in front of lora_a
};

struct NormModule {
  Tensor weight, bias;
};

// Allocates the parameters in the order in which Module.to visits them.
class ModuleBuilder {
 public:
  ModuleBuilder(Aten& aten, const Workload& workload, Dtype dtype);

  Tensor Parameter(const std::string& name, const Dims& shape, bool decayed = true);
  Tensor Buffer(const Dims& shape);  // fp32, not trained
  LinearModule Linear(const std::string& name, int64_t in, int64_t out, bool bias);
  LinearModule Conv1d(const std::string& name, int64_t in, int64_t out);
  NormModule Norm(const std::string& name, int64_t width, bool bias);

  std::vector<HfParameter>& parameters() { return parameters_; }
  const std::vector<Tensor>& buffers() const { return buffers_; }

 private:
  void AddLora(const std::string& name, int64_t in, int64_t out, LinearModule& module);
  Tensor Add(const std::string& name, const Dims& shape, Dtype dtype, bool trained, bool decayed);
  Tensor Share(const Dims& shape, Dtype dtype);

  Aten& aten_;
  const Workload& workload_;
  Dtype dtype_;
  std::map<std::string, int64_t> lora_targets_;
  std::vector<HfParameter> parameters_;
  std::vector<Tensor> buffers_;
};

// What one forward pass reads besides its hidden state. Destroyed as Python's keyword arguments
// are: in the order in which the model passes them.
struct LayerInputs {
  bool positions_first = false;  // before the rotary embeddings (Mistral)
  bool mask_by_position = false;  // no keyword (GPT-2): it goes with the layer's input
  Tensor mask;
  Tensor position_ids;
  Tensor cos, sin;

  ~LayerInputs() {
    if (mask_by_position) position_ids = {};
    mask = {};
    if (positions_first) position_ids = {};
    sin = {};
    cos = {};
    position_ids = {};
  }
};

// modules.cc
Tensor ApplyLinear(Aten& aten, const LinearModule& module, Tensor x);
Tensor ApplyRmsNorm(Aten& aten, const Tensor& weight, double eps, const Tensor& x);
Tensor ApplyLayerNorm(Aten& aten, const NormModule& norm, double eps, const Tensor& x);

// positions.cc: what Transformers computes before the first layer.
Tensor MakePositionIds(Aten& aten, int64_t seq_len);
void FindPackedSequences(Aten& aten, int64_t batch, int64_t seq_len);
Tensor MakeEagerMask(Aten& aten, Dtype dtype, int64_t batch, int64_t seq_len);
// The same mask as flags (Falcon's sdpa, which always has one).
Tensor MakeCausalFlags(Aten& aten, int64_t batch, int64_t seq_len);
// cos and sin [1, S, D] of `dtype`.
std::pair<Tensor, Tensor> MakeRotary(Aten& aten, const Tensor& inv_freq, int64_t seq_len,
                                     Dtype dtype);
std::pair<Tensor, Tensor> ApplyRotary(Aten& aten, const Tensor& q, const Tensor& k,
                                      const Tensor& cos, const Tensor& sin);

// attention.cc: attention of [B, H, S, D] → [B, S, H, D]; eager returns its weights as well.
struct AttentionCall {
  double scale = 1;
  double dropout = 0;
  bool eager = false;
  int64_t groups = 1;  // query heads that share one K and V head
  bool gpt2 = false;   // its own eager form
};
std::pair<Tensor, Tensor> ApplyAttention(Aten& aten, const AttentionCall& call, const Tensor& q,
                                         const Tensor& k, const Tensor& v, const Tensor& mask);

}  // namespace hbmtune::lowering
