#pragma once

#include <utility>

#include "kernels/lowering/fused/parameters.h"
#include "kernels/lowering/fused/saved.h"

// What the functions of the fused lowering share. Each function runs ops through the tape,
// and attaches one node with a hand-fused backward pass; gradients of parameters go straight into
// .grad, so its node returns them empty.
namespace hbmtune::lowering {

class DataParallel;

struct Context {
  Tape& tape;
  const Workload& workload;
  const TrainConfig& config;
  Parameters& parameters;
  Dtype compute;        // of products and activations
  int64_t batch = 0;    // sequences of the micro-batch
  int64_t tokens = 0;   // of one sequence
  Tensor cos = {}, sin = {};  // rotary tables [seq_len, head_dim / 2] fp32
  // Of the documents in packed rows [batch, tokens] int64, while a forward pass or a recomputation
  // runs; else empty. Nodes that will want it keep it.
  Tensor starts = {};
  Tensor random = {};     // generator [2] int64, if the model drops out
  ActivationMover* offload = nullptr;  // null: activations stay
  std::vector<size_t>* unit_ends = nullptr;  // positions in the Program, for the dry run
  Tensor loss_scale = {}; // [1] fp32, with fp16
  Tensor logits = {};     // [rows, vocab]: where a copy is kept, if asked for
  double loss_factor = 1;  // of a micro-batch's mean loss: 1 ÷ (micro-batches × ranks)
  DataParallel* data_parallel = nullptr;
  Category stream_category = Category::kActivations;  // whose the residual stream is
  // In a recomputation the last product of a segment is not needed: only its graph is.
  bool skip_output = false;

  // Of statistics, losses and what the optimizer reads: fp32, or fp64 where all is.
  Dtype statistics() const { return compute == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32; }
  const ModelSpec& model() const { return workload.model; }
  int64_t rows() const { return batch * tokens; }
};

// `x` itself, or a copy in `dtype`.
Tensor Cast(Context& context, const Tensor& x, Dtype dtype);
Tensor Activation(Context& context, Dtype dtype, const Dims& shape);
// The key of the next dropout (ops/random_key): saved, it replays it.
Tensor RandomKey(Context& context);

// Sets a variable for as long as it lives.
template <class T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), before_(std::move(variable)) {
    variable_ = std::move(value);
  }
  ~Scoped() { variable_ = std::move(before_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T before_;
};

}  // namespace hbmtune::lowering
