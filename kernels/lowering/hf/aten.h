#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/lowering/hf.h"
#include "kernels/program/tape.h"

// PyTorch's operators on the Tape, with the allocations that its CUDA and ROCm kernels make and
// the backward formulas of derivatives.yaml (2.15): what each node saves, in which order a node
// computes its gradients (by the name of the argument), what is a view and what a copy.
//
// Lifetimes are Python's. An operator takes its tensors by value and lets go of them before it
// returns, left to right, as the interpreter pops its stack; a caller moves what is a temporary
// of the expression and copies what a variable goes on holding.
namespace hbmtune::lowering {

class ModuleHooks;

// What one node saved, or where a recomputation will put it (non-reentrant checkpointing).
class Recomputation;
struct SavedTensor {
  Tensor tensor;
  std::shared_ptr<Recomputation> recomputation;
  size_t index = 0;
};

// The saved tensors of one checkpointed block: dropped in the forward pass, computed again when
// the backward pass first asks for one of them (torch/utils/checkpoint.py, _checkpoint_hook).
class Recomputation {
 public:
  explicit Recomputation(std::function<void()> run) : run_(std::move(run)) {}

 private:
  friend class Aten;
  std::function<void()> run_;
  size_t dropped_ = 0;        // by the forward pass
  size_t recomputed_ = 0;
  bool done_ = false;
  std::vector<Tensor> tensors_;
};

// Ends a recomputation as soon as its last saved tensor is there.
struct StopRecomputation {};

class Aten {
 public:
  using Tensors = std::vector<Tensor>;
  // Gradients of the outputs and what was saved (unpacked) → gradients of the inputs.
  struct Backward {
    Tensors& grads;
    Tensors& saved;
    uint32_t needed;  // bit i: the gradient of input i is wanted
    bool needs(int input) const { return (needed >> input & 1u) != 0; }
  };
  using BackwardBody = std::function<Tensors(Backward&)>;

  Aten(Tape& tape, const HfGpu& gpu) : tape_(tape), gpu_(gpu) {}

  Tape& tape() { return tape_; }
  // Whom what is allocated from now on belongs to.
  Category category() const { return category_; }
  void set_category(Category category) { category_ = category; }

  // --- storages ---------------------------------------------------------------------------------
  Tensor New(Dtype dtype, const Dims& shape);
  Tensor NewStrided(Dtype dtype, const Dims& shape, const Dims& strides);
  Tensor Full(Dtype dtype, const Dims& shape, double value);
  // What a kernel takes for itself, or what only masks and checks read: filled, never used.
  Tensor Scratch(Dtype dtype, const Dims& shape) { return Full(dtype, shape, 0); }
  // The optimizer's state in host memory: zeros.
  Tensor HostState(Dtype dtype, const Dims& shape);

  // Any dtype, integers too.
  void CopyInto(const Tensor& from, const Tensor& to);

  // --- views ------------------------------------------------------------------------------------
  Tensor View(Tensor x, const Dims& shape);        // throws std::logic_error if it is no view
  Tensor UnsafeView(Tensor x, const Dims& shape);  // a view that does not hold its base
  Tensor Reshape(Tensor x, const Dims& shape);     // a view or a copy
  Tensor Transpose(Tensor x, int first, int second);
  Tensor Slice(Tensor x, int dim, int64_t begin, int64_t end);
  Tensor Unsqueeze(Tensor x, int dim);
  // x[..., [position], ...]: a copy, by a list of one index that stands on the device.
  Tensor Index(Tensor x, int dim, int64_t position);
  std::array<Tensor, 3> SplitLast3(Tensor x);  // three equal parts of the last dimension
  Tensor Expand(Tensor x, const Dims& shape);
  Tensor Contiguous(Tensor x);
  Tensor Clone(Tensor x);

  // --- elementwise -----------------------------------------------------------------------------
  Tensor Add(Tensor a, Tensor b);
  // Into a's memory, as x += y (bias of a product).
  Tensor AddInPlace(Tensor a, Tensor b);
  Tensor Mul(Tensor a, Tensor b);
  Tensor AddScalar(Tensor a, double value);
  Tensor MulScalar(Tensor a, double value);
  Tensor DivScalar(Tensor a, double value);
  Tensor DivInPlace(Tensor a, double value);
  Tensor Neg(Tensor a);
  Tensor Pow(Tensor a, double exponent);
  Tensor Rsqrt(Tensor a);
  Tensor Tanh(Tensor a);
  Tensor Silu(Tensor a);
  Tensor Gelu(Tensor a);
  Tensor To(Tensor a, Dtype dtype);  // itself if it already is
  Tensor Map(const OpKind& op, Tensor a);  // of what needs no gradient
  Tensor Dropout(Tensor a, double probability);

  // --- reductions, layouts --------------------------------------------------------------------
  Tensor MeanLast(Tensor a);                   // keeps the dimension
  Tensor CatLast(Tensor a, Tensor b);
  Tensor Softmax(Tensor a, Dtype dtype);       // over the last dimension, computed in dtype
  Tensor LayerNorm(Tensor x, Tensor weight, Tensor bias, double eps);
  Tensor Embedding(Tensor ids, Tensor weight);
  // Mean cross-entropy of [N, V] logits over [N] targets.
  Tensor CrossEntropy(Tensor logits, Tensor targets);

  // --- products --------------------------------------------------------------------------------
  Tensor Linear(Tensor x, const Tensor& weight, const Tensor& bias = {});
  // DeepSpeed's own for stage 3: the weight itself is no saved tensor, its memory may come and go.
  Tensor LinearOfPartitioned(Tensor x, const Tensor& weight, const Tensor& bias);
  // addmm(bias, x, weight) with weight [in, out], for [N, in] (GPT-2's Conv1D).
  Tensor Addmm(Tensor bias, Tensor x, Tensor weight);
  Tensor AutocastAddmm(const Tensor& bias, Tensor x, const Tensor& weight);
  Tensor MatmulFolded(Tensor x, Tensor weight_t);  // [B, S, K] × [K, N]
  // With a head axis of 1 in `b` repeated.
  Tensor Matmul(Tensor a, Tensor b);  // [B, H, M, K] × [B, H, K, N]

  struct Attention {
    double scale = 1;
    double dropout = 0;
    bool causal = true;
    bool masked = false;  // by a mask that says the same: then never the flash kernel
  };
  // scaled_dot_product_attention of [B, H, S, D], K and V with their own heads; the flash kernel
  // for 16 bit, the memory-efficient one for fp32, as PyTorch chooses without a mask.
  Tensor Sdpa(Tensor query, Tensor key, Tensor value, const Attention& attention);

  // --- autocast -------------------------------------------------------------------------------
  void EnterAutocast(std::optional<Dtype> dtype);
  void ExitAutocast();  // drops the cache of the outermost context
  std::optional<Dtype> autocast() const { return autocast_; }

  // --- checkpointing --------------------------------------------------------------------------
  // Runs `block` on `input` without keeping what its nodes save; see Recomputation.
  struct CheckpointCall {
    bool reentrant = false;
    // Where the block leaves another output, of which nobody wants a gradient, or null: the
    // reentrant function goes backward from zeros for it.
    Tensor* second = nullptr;
    Tensor also;  // a further argument of the block
    // Arguments are kept in pinned memory (Transformers' `offload`, torch's save_on_cpu) and come
    // back for the recomputation, on the stream that computes.
    bool on_host = false;
  };
  using Block = std::function<Tensor(Tensor input, const Tensor& also)>;
  Tensor Checkpoint(Tensor input, Block block, CheckpointCall call);

  // Over how many ranks parameters are partitioned as they are created; 0 for not at all.
  int64_t parameter_ranks() const { return parameter_ranks_; }
  void set_parameter_ranks(int64_t ranks) { parameter_ranks_ = ranks; }
  bool in_backward() const { return in_backward_; }
  // Told of every module, where somebody wants to know (stage 3); may be null.
  ModuleHooks* module_hooks() const { return module_hooks_; }
  void set_module_hooks(ModuleHooks* hooks) { module_hooks_ = hooks; }
  // Dropout is for training only.
  void set_training(bool training) { training_ = training; }
  // One seed for each dropout; a recomputation replays those of its forward pass.
  int64_t NextSeed() { return next_seed_++; }

 private:
  Tensor ReentrantCheckpoint(Tensor input, const Block& block, Block again, CheckpointCall call);
  Tensor ToHost(const Tensor& tensor);
  Tensor FromHost(const Tensor& tensor);
  struct Node {
    std::string_view name;
    std::vector<SavedTensor> saved;
    uint32_t needed = 0;
    bool recorded() const { return needed != 0; }
    bool needs(int input) const { return (needed >> input & 1u) != 0; }
  };
  // Before the kernel runs: which gradients will be wanted.
  Node Record(std::string_view name, std::initializer_list<const Tensor*> inputs);
  void Save(Node& node, const Tensor& tensor);
  // After it: makes `out` a result of the node.
  void Finish(Node&& node, std::initializer_list<const Tensor*> inputs, Tensor& out,
              BackwardBody body) {
    Finish(std::move(node), inputs, std::span(&out, 1), std::move(body));
  }
  void Finish(Node&& node, std::initializer_list<const Tensor*> inputs, std::span<Tensor> out,
              BackwardBody body);
  Tensors Unpack(const std::vector<SavedTensor>& saved);
  Tensors RunBackward(Tensors& grads, const std::vector<SavedTensor>& saved, uint32_t needed,
                      const BackwardBody& body);
  // What the engine does to a gradient that a node returns: sums it to the input's shape, casts it.
  Tensor Validate(Tensor gradient, const Dims& shape, Dtype dtype);

  Tensor Pointwise(const OpKind& op, const Tensor& a, const Tensor& b, Dtype dtype,
                   double scalar = 0);
  Tensor CastForProduct(const Tensor& tensor);
  void DropCasts();
  Tensor CastToFp32(Tensor tensor);
  Tensor SumTo(const Tensor& x, const Dims& shape);
  void IndexPutScratch(const Tensor& values);
  void ColumnSumScratch(const Tensor& x, const Dims& shape);
  Tensor ReshapeNoGrad(const Tensor& x, const Dims& shape);
  // A product a·b [+ bias] into `out`, with its BLAS workspace.
  void Product(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out);
  Tensor Mm(Tensor x, Tensor weight_t);
  Tensor Bmm(Tensor a, Tensor b);
  Tensor WeightGradient(const Tensor& grad, const Tensor& x);
  Tensor ConvGradient(const Tensor& grad, const Tensor& x);
  Tensor InputGradient(const Tensor& grad, const Tensor& weight_t);
  Tensors FlashBackward(Backward& b, const Attention& attention);
  Tensors EfficientBackward(Backward& b, const Attention& attention);
  Tensors RunAttentionBackward(Backward& b, const Attention& attention, const Tensors& gradients,
                               const Tensor& delta);
  struct AttentionState {
    Tensor out, lse, random, unused;
  };
  Tensor MaskBias(const Tensor& q);
  AttentionState FlashState(const Tensor& q, const Attention& attention);
  AttentionState EfficientState(const Tensor& q, const Attention& attention, const Node& node);
  void RunAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionState& state, const Attention& attention);

  Tape& tape_;
  const HfGpu& gpu_;
  std::array<Tensor, 2> kept_workspaces_;  // of the main thread and of autograd's
  bool in_backward_ = false;
  bool training_ = true;
  int64_t parameter_ranks_ = 0;
  ModuleHooks* module_hooks_ = nullptr;
  Category category_ = Category::kActivations;
  std::optional<Dtype> autocast_;
  int autocast_depth_ = 0;
  std::vector<std::pair<StorageId, Tensor>> cast_cache_;  // oldest first
  int64_t next_seed_ = 0;
  std::shared_ptr<Recomputation> dropping_;    // the block whose forward pass runs
  std::shared_ptr<Recomputation> recomputing_;  // the block that is computed again
};

// Strides under which a tensor of these strides is seen as `to`; nothing if it cannot be.
std::optional<Dims> ViewStrides(const Dims& shape, const Dims& strides, const Dims& to);
// Dense, whatever the strides of extents of 1 are.
bool IsContiguous(const Tensor& x);
// Shape to which both broadcast.
Dims BroadcastShape(const Dims& a, const Dims& b);
// Strides of an elementwise result, as TensorIterator lays it out (inputs in order, `b` optional).
Dims ResultStrides(const Dims& shape, const Tensor& a, const Tensor* b);

}  // namespace hbmtune::lowering
