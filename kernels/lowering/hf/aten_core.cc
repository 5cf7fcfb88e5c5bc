#include <algorithm>
#include <array>
#include <stdexcept>

#include "kernels/lowering/hf/aten.h"
#include "kernels/lowering/hf/weight_gatherer.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_reduce/aten_reduce.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/fill/fill.h"

// Recording of nodes, autocast and checkpointing: what stands around every operator.
namespace hbmtune::lowering {
namespace {

constexpr size_t kMaxInputs = 4;  // of a node

}  // namespace

// --- storages -----------------------------------------------------------------------------------

Tensor Aten::New(Dtype dtype, const Dims& shape) { return tape_.Empty(dtype, shape, category_); }

Tensor Aten::NewStrided(Dtype dtype, const Dims& shape, const Dims& strides) {
  Tensor dense = New(dtype, shape);
  if (strides == dense.strides()) return dense;
  return tape_.ViewOf(dense, shape, strides);
}

Tensor Aten::Full(Dtype dtype, const Dims& shape, double value) {
  return tape_.Full(dtype, shape, value, category_);
}

Tensor Aten::HostState(Dtype dtype, const Dims& shape) {
  Tensor zeros = tape_.Empty(dtype, shape, Category::kOptimizer, MemorySpace::kPinned);
  tape_.Run(ops::kFill, {}, {zeros}, Attrs::Of(FillAttrs{0}));
  return zeros;
}

void Aten::CopyInto(const Tensor& from, const Tensor& to) {
  if (from.dtype() == Dtype::kI64) {
    tape_.Run(ops::kAtenAddScalar, {from}, {to}, Attrs::Of(ops::AtenPointwiseAttrs{0}));
  } else {
    tape_.Run(ops::kCopy, {from}, {to});
  }
}

// --- nodes --------------------------------------------------------------------------------------

Aten::Node Aten::Record(std::string_view name, std::initializer_list<const Tensor*> inputs) {
  Node node;
  node.name = name;
  if (!tape_.grad_enabled()) return node;
  uint32_t bit = 1;
  for (const Tensor* input : inputs) {
    if (*input && input->requires_grad()) node.needed |= bit;
    bit <<= 1;
  }
  return node;
}

void Aten::Save(Node& node, const Tensor& tensor) {
  if (!node.recorded()) return;
  SavedTensor saved;
  if (tensor && dropping_) {
    saved.recomputation = dropping_;
    saved.index = dropping_->dropped_++;
  } else if (tensor) {
    // Of a leaf the tensor itself is kept, and a partitioned weight's memory comes and goes. What a
    // recomputation saves is detached if it wants a gradient.
    const bool itself = module_hooks_ != nullptr &&
                        (!tensor.requires_grad() || (tensor.is_leaf() && !recomputing_)) &&
                        module_hooks_->IsWeight(tensor);
    saved.tensor = itself ? tensor : tape_.Detach(tensor);
    if (recomputing_) {
      recomputing_->tensors_.push_back(saved.tensor);
      if (++recomputing_->recomputed_ == recomputing_->dropped_) {
        // The traceback keeps the frames until the context has dropped its casts.
        if (autocast_depth_ == 1) DropCasts();
        throw StopRecomputation{};
      }
    }
  }
  node.saved.push_back(std::move(saved));
}

void Aten::Finish(Node&& node, std::initializer_list<const Tensor*> inputs,
                  std::span<Tensor> results, BackwardBody body) {
  if (!node.recorded()) return;
  struct Meta {
    Dims shape;
    Dtype dtype = Dtype::kF32;
    bool leaf = false;
  };
  std::array<Meta, kMaxInputs> metas;
  std::array<Tensor, kMaxInputs> edges;
  size_t count = 0;
  for (const Tensor* input : inputs) {
    edges.at(count) = *input;
    if (*input) metas[count] = {input->shape(), input->dtype(), input->is_leaf()};
    ++count;
  }
  tape_.Attach(node.name, std::span(edges.data(), count), results,
               [this, metas, saved = std::move(node.saved),
                needed = node.needed, category = category_,
                body = std::move(body)](std::vector<Tensor> grads) {
                 const Category before = category_;
                 const bool outer = std::exchange(in_backward_, true);
                 category_ = category;
                 Tensors out = RunBackward(grads, saved, needed, body);
                 for (size_t i = 0; i < out.size(); ++i) {
                   if (!out[i]) continue;
                   category_ = metas[i].leaf ? Category::kGradients : category;
                   out[i] = Validate(std::move(out[i]), metas[i].shape, metas[i].dtype);
                 }
                 category_ = before;
                 in_backward_ = outer;
                 return out;
               });
}

// Locals of the node's code die in reverse order when it returns.
Aten::Tensors Aten::RunBackward(Tensors& grads, const std::vector<SavedTensor>& saved,
                                uint32_t needed, const BackwardBody& body) {
  Tensors unpacked = Unpack(saved);
  Backward backward{grads, unpacked, needed};
  Tensors out = body(backward);
  while (!unpacked.empty()) unpacked.pop_back();
  return out;
}

Aten::Tensors Aten::Unpack(const std::vector<SavedTensor>& saved) {
  Tensors tensors;
  tensors.reserve(saved.size());
  for (const SavedTensor& s : saved) {
    if (!s.recomputation) {
      tensors.push_back(s.tensor);
      continue;
    }
    Recomputation& block = *s.recomputation;
    if (!block.done_) {
      auto outer = std::exchange(recomputing_, s.recomputation);
      const bool grad_mode = tape_.grad_enabled();
      tape_.set_grad_enabled(true);
      try {
        block.run_();
      } catch (const StopRecomputation&) {
      }
      tape_.set_grad_enabled(grad_mode);
      recomputing_ = std::move(outer);
      block.done_ = true;
    }
    tensors.push_back(std::move(block.tensors_[s.index]));
  }
  return tensors;
}

// Reduce.cuh, setReduceConfig: sums of columns over many rows are split over blocks, which leave
// partial sums and count themselves in a semaphore for each block of columns.
void Aten::ColumnSumScratch(const Tensor& x, const Dims& shape) {
  const int64_t columns = ElementCount(shape), rows = x.elements() / columns / 4;
  const bool of_columns = shape.rank() > 0 && shape.back() == columns &&
                          x.shape().back() == columns && x.dense();
  if (!of_columns || columns < 128 || rows < 256) return;
  auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t column_blocks = ceil(columns, 128);
  const int64_t blocks = std::min(
      ceil(rows, 16), std::max(ceil(rows, 256), ceil(16 * gpu_.compute_units, column_blocks)));
  Tensor partials = Scratch(Dtype::kF32, {columns * blocks * 128});
  Tensor semaphores = Scratch(Dtype::kI32, {column_blocks});
  semaphores = {};
  partials = {};
}

Tensor Aten::SumTo(const Tensor& x, const Dims& shape) {
  Tensor sum = New(x.dtype(), shape);
  ColumnSumScratch(x, shape);
  tape_.Run(ops::kAtenSum, {x}, {sum}, Attrs::Of(ops::AtenSumAttrs{}));
  return sum;
}

// engine.cpp, validate_outputs.
Tensor Aten::Validate(Tensor gradient, const Dims& shape, Dtype dtype) {
  if (gradient.shape() != shape) {
    Tensor sum = SumTo(gradient, shape);
    gradient = std::move(sum);
  }
  if (gradient.dtype() != dtype) {
    Tensor cast = NewStrided(dtype, shape, ResultStrides(shape, gradient, nullptr));
    tape_.Run(ops::kCopy, {gradient}, {cast});
    gradient = std::move(cast);
  }
  return gradient;
}

// --- autocast -----------------------------------------------------------------------------------

void Aten::EnterAutocast(std::optional<Dtype> dtype) {
  autocast_ = dtype;
  ++autocast_depth_;
}

void Aten::ExitAutocast() {
  autocast_.reset();
  if (--autocast_depth_ == 0) DropCasts();
}

void Aten::DropCasts() {
  // The recorder sorts these frees by age: PyTorch's cache is a hash map by address.
  for (auto& [storage, cast] : cast_cache_) cast = {};
  cast_cache_.clear();
}

// autocast_mode.cpp, cached_cast: only fp32 leaves that want a gradient are kept.
Tensor Aten::CastForProduct(const Tensor& tensor) {
  if (!autocast_ || !tensor || tensor.dtype() == *autocast_) return tensor;
  if (tensor.dtype() != Dtype::kF32 && !IsHalf(tensor.dtype())) return tensor;
  const bool cacheable =
      tensor.dtype() == Dtype::kF32 && tensor.is_leaf() && tensor.requires_grad();
  if (!cacheable) return To(tensor, *autocast_);
  for (auto& [storage, cast] : cast_cache_) {
    if (storage == tensor.storage()) return cast;
  }
  Tensor cast = To(tensor, *autocast_);
  cast_cache_.emplace_back(tensor.storage(), cast);
  return cast;
}

Tensor Aten::CastToFp32(Tensor tensor) {
  if (!autocast_ || !IsHalf(tensor.dtype())) return tensor;
  return To(std::move(tensor), Dtype::kF32);
}

// --- checkpointing --------------------------------------------------------------------------

Tensor Aten::ToHost(const Tensor& tensor) {
  if (!tensor) return {};
  Tensor host = tape_.Empty(tensor.dtype(), tensor.shape(), Category::kCheckpoints,
                            MemorySpace::kPinned);
  tape_.Copy(tensor, host);
  return host;
}

Tensor Aten::FromHost(const Tensor& tensor) {
  if (!tensor) return {};
  const Category before = std::exchange(category_, Category::kCheckpoints);
  Tensor back = New(tensor.dtype(), tensor.shape());
  category_ = before;
  tape_.Copy(tensor, back);
  return back;
}

Tensor Aten::Checkpoint(Tensor input, Block block, CheckpointCall call) {
  const int64_t seed = next_seed_;
  const std::optional<Dtype> autocast = autocast_;
  // Forward state of the block, to be repeated when it runs again.
  auto again = [this, seed, autocast, block](Tensor x, const Tensor& also) {
    const int64_t now = std::exchange(next_seed_, seed);
    EnterAutocast(autocast);
    Tensor out;
    try {
      out = block(std::move(x), also);
    } catch (...) {
      ExitAutocast();
      next_seed_ = now;
      throw;
    }
    ExitAutocast();
    next_seed_ = now;
    return out;
  };
  if (call.reentrant) return ReentrantCheckpoint(std::move(input), block, again, std::move(call));
  std::function<void()> run = [input, also = call.also, again] { again(input, also); };
  if (call.on_host && tape_.grad_enabled()) {
    const bool trainable = input.requires_grad();
    run = [this, host = ToHost(input), host_also = ToHost(call.also), trainable, again] {
      Tensor back = FromHost(host), back_also = FromHost(host_also);
      if (trainable) {  // no leaf: a result, as its original is
        Tensor leaf = tape_.Detach(back);
        leaf.set_requires_grad(true);
        tape_.Attach("SavedVariable", {leaf}, back, [](Tensors grads) { return grads; });
      }
      again(back, back_also);
    };
  }
  auto outer = std::exchange(dropping_, std::make_shared<Recomputation>(std::move(run)));
  Tensor out = block(std::move(input), call.also);
  dropping_ = std::move(outer);
  return out;
}

// CheckpointFunction: a node of its own, which runs the block again and goes backward through it.
Tensor Aten::ReentrantCheckpoint(Tensor input, const Block& block, Block again,
                                 CheckpointCall call) {
  Node node = Record("CheckpointFunctionBackward", {&input});
  const bool on_host = call.on_host && node.recorded();
  if (!on_host) {
    Save(node, input);
    Save(node, call.also);
  }
  const bool trainable = input.requires_grad();
  std::array<Tensor, 2> outputs;
  {
    NoGrad guard(tape_);
    outputs[0] = block(input, call.also);
  }
  Tensors host;
  if (on_host) host = {ToHost(input), ToHost(call.also)};
  Tensor* second = call.second;
  if (second != nullptr) outputs[1] = *second;
  const bool two = static_cast<bool>(outputs[1]);
  const Dims second_shape = two ? outputs[1].shape() : Dims{};
  const Dtype second_dtype = two ? outputs[1].dtype() : Dtype::kF32;
  Finish(std::move(node), {&input}, std::span(outputs.data(), two ? 2 : 1),
         [this, again = std::move(again), trainable, second, two, second_shape, second_dtype,
          host = std::move(host)](Backward& b) {
           Tensor zeros;
           if (two) zeros = Full(second_dtype, second_shape, 0);
           for (const Tensor& tensor : host) b.saved.push_back(FromHost(tensor));
           Tensor detached = tape_.Detach(b.saved[0]);
           detached.set_requires_grad(trainable);
           tape_.set_grad_enabled(true);
           Tensor out = again(detached, b.saved[1]);
           Tensor other = two ? std::exchange(*second, {}) : Tensor{};
           tape_.set_grad_enabled(false);
           if (two) {
             tape_.Backward({out, other}, {b.grads[0], zeros});
           } else {
             tape_.Backward({out}, {b.grads[0]});
           }
           other = {};
           Tensors grads{detached.grad()};
           detached.set_grad({});
           detached = {};
           while (!host.empty() && !b.saved.empty()) b.saved.pop_back();  // names before `outputs`
           out = {};
           return grads;
         });
  return outputs[0];
}

}  // namespace hbmtune::lowering
