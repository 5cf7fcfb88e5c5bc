#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/program/program.h"

// Writes a Program the way PyTorch would run it. A lowering is ordinary code that handles Tensors;
// the Tape turns it into instructions and gives it autograd's lifetimes:
//   - a storage is freed when the last Tensor that shares it is gone (views share), and the Free
//     is written at that very point of the Program;
//   - what a backward closure captured dies right after its node has run;
//   - the first gradient of a leaf is kept as it is, later ones are added in place;
//   - gradients that meet at a node are added in place only if nobody else holds the first.
// Rules read in PyTorch's engine.cpp, input_buffer.cpp and accumulate_grad.h (2.x).
namespace hbmtune {

class Tape;
struct GradNode;  // one recorded operation
struct Storage;   // one allocation and its Free
struct Emitter;   // where instructions go; outlives the Tape through its storages

// A counted reference to a view of a storage; empty when default-constructed. Cheap to copy.
// A Tensor that outlives its Tape is inert.
class Tensor {
 public:
  Tensor() = default;

  explicit operator bool() const { return impl_ != nullptr; }
  const Dims& shape() const;
  const Dims& strides() const;
  Dtype dtype() const;
  int64_t elements() const;
  int64_t bytes() const;
  bool dense() const;
  StorageId storage() const;
  bool SameTensor(const Tensor& other) const { return impl_ == other.impl_; }
  bool requires_grad() const;
  // Trainable and no result of a node.
  bool is_leaf() const;
  // Dense up to a permutation of its dimensions.
  bool permuted_dense() const;
  // Number of handles to this very tensor; its storage may be shared by more.
  long handles() const;

  // The gradient of a leaf; empty before the first backward pass.
  Tensor grad() const;
  void set_grad(Tensor grad);
  // Makes a leaf trainable: gradients that reach it accumulate in grad().
  void set_requires_grad(bool value);

 private:
  friend class Tape;
  struct Impl;
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Gradients of the outputs come in (empty where none arrived), gradients of the inputs go out
// (empty where not needed). What the closure captured is what autograd saved.
using BackwardFn = std::function<std::vector<Tensor>(std::vector<Tensor> grads)>;

// The additions that the engine itself has to write.
struct TapeOps {
  const OpKind* add = nullptr;          // out = a + b, a fresh tensor
  const OpKind* add_in_place = nullptr;  // out (== first input) += b
  const OpKind* fill = nullptr;         // out = constant (FillAttrs), no input
  const OpKind* copy = nullptr;         // out = in, any strides, dtype converted
};

struct FillAttrs {
  double value = 0;
};

// Not thread-safe. The Program must outlive the Tape.
class Tape {
 public:
  Tape(Program& program, const TapeOps& ops);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // --- tensors ------------------------------------------------------------------------------
  // A dense tensor in a new storage. std::invalid_argument over 256 TiB.
  Tensor Empty(Dtype dtype, const Dims& shape, Category category,
               MemorySpace space = MemorySpace::kDevice);
  // Empty, then filled; the gradient of a scalar loss starts as Full(1).
  Tensor Full(Dtype dtype, const Dims& shape, double value, Category category);
  // Another view of the same storage; no autograd edge.
  Tensor ViewOf(const Tensor& base, const Dims& shape, const Dims& strides,
                int64_t offset_elements = 0, std::optional<Dtype> dtype = std::nullopt);
  // A view as PyTorch's view operators make it: it holds its root base as well, so a gradient that
  // is such a view is never added to in place (its storage has a second holder).
  Tensor Alias(const Tensor& base, const Dims& shape, const Dims& strides,
               int64_t offset_elements = 0);
  // tensor.data = data: every handle to `tensor` sees the other storage from now on. Only for
  // leaves that no instruction of the current step has used.
  void Rebind(const Tensor& tensor, const Tensor& data);
  // The same view without its history: what a node saves of its own output.
  Tensor Detach(const Tensor& tensor);

  // --- instructions -------------------------------------------------------------------------
  void Run(const OpKind& op, std::initializer_list<Tensor> in, std::initializer_list<Tensor> out,
           const Attrs& attrs = {});
  void Run(const OpKind& op, std::span<const Tensor> in, std::span<const Tensor> out,
           const Attrs& attrs = {});
  void Copy(const Tensor& from, const Tensor& to);
  void Collective(CollectiveKind kind, const Tensor& from, const Tensor& to, uint32_t root = 0);
  EventId Record();             // on the current stream
  void Wait(EventId event);     // the current stream waits
  void HostWait(EventId event);
  void UseOnCurrentStream(const Tensor& tensor);
  void ReadScalar(const Tensor& from, ScalarSlot slot);
  void Feed(const Tensor& token_ids, const Tensor& labels);
  void Phase(PhaseKind kind);
  void NameParameter(const std::string& name, const Tensor& tensor);
  void NameState(const std::string& name, const Tensor& tensor);

  // The stream on which what follows is issued (and allocated).
  void set_stream(StreamId stream) { stream_ = stream; }
  StreamId stream() const { return stream_; }

  // Ends the setup, then the first step: what follows is the next section. Storage ids start
  // again above the highest live one, so that equal steps get equal ids.
  void BeginFirstStep();
  void BeginSteadyStep();
  // The same for micro-steps.
  void RewindIds();

  // --- autograd -----------------------------------------------------------------------------
  bool grad_enabled() const { return grad_enabled_; }
  void set_grad_enabled(bool enabled) { grad_enabled_ = enabled; }
  // Whether a node over these inputs would be recorded.
  bool NeedsGrad(std::initializer_list<Tensor> inputs) const;
  // Makes `outputs` results of a node over `inputs`. Nothing if none of them needs a gradient.
  void Attach(std::string_view name, std::span<const Tensor> inputs, std::span<Tensor> outputs,
              BackwardFn backward);
  void Attach(std::string_view name, std::initializer_list<Tensor> inputs, Tensor& output,
              BackwardFn backward);
  // Runs the nodes behind `root`, latest first. `gradient` defaults to ones. The graph is used up.
  void Backward(Tensor root, Tensor gradient = {});
  // Several roots at once, as reentrant checkpointing does.
  void Backward(std::vector<Tensor> roots, std::vector<Tensor> gradients);
  // Called when a leaf's gradient of this backward pass is complete (DDP, ZeRO, fused optimizers).
  void set_on_leaf_grad(std::function<void(Tensor& leaf)> callback);

  Program& program() { return *program_; }

 private:
  struct GraphTask;

  ViewId ViewIdOf(const Tensor& tensor);
  std::shared_ptr<GradNode> GradientEdge(const Tensor& tensor);
  void AccumulateLeaf(Tensor leaf, Tensor gradient);
  Tensor Sum(Tensor first, const Tensor& second);

  Program* program_;
  TapeOps ops_;
  std::shared_ptr<Emitter> emitter_;
  StreamId stream_ = kComputeStream;
  bool grad_enabled_ = true;
  uint64_t next_sequence_ = 0;
  std::function<void(Tensor&)> on_leaf_grad_;
};

// Grad mode off while it lives (torch.no_grad).
class NoGrad {
 public:
  explicit NoGrad(Tape& tape) : tape_(tape), before_(tape.grad_enabled()) {
    tape_.set_grad_enabled(false);
  }
  ~NoGrad() { tape_.set_grad_enabled(before_); }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape& tape_;
  bool before_;
};

// What follows is issued on another stream while it lives.
class OnStream {
 public:
  OnStream(Tape& tape, StreamId stream) : tape_(tape), before_(tape.stream()) {
    tape_.set_stream(stream);
  }
  ~OnStream() { tape_.set_stream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  Tape& tape_;
  StreamId before_;
};

}  // namespace hbmtune
