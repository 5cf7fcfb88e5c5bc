#include <algorithm>
#include <limits>
#include <stdexcept>

#include "kernels/program/tape.h"
#include "kernels/program/tape_internal.h"

namespace hbmtune {

// --- recording --------------------------------------------------------------------------------

bool Tape::NeedsGrad(std::initializer_list<Tensor> inputs) const {
  return grad_enabled_ && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) {
           return t && t.requires_grad();
         });
}

// A leaf's accumulator runs as soon as its gradient is there: PyTorch gives it the highest
// sequence number (accumulate_grad.h).
std::shared_ptr<GradNode> Tape::GradientEdge(const Tensor& tensor) {
  if (tensor.impl_->node != nullptr) return tensor.impl_->node;
  if (!tensor.impl_->trainable) return nullptr;
  if (auto existing = tensor.impl_->accumulator.lock()) return existing;
  auto node = emitter_->Make<GradNode>();
  node->name = "accumulate_grad";
  node->sequence = std::numeric_limits<uint64_t>::max();
  node->backward = [this, leaf = tensor](std::vector<Tensor> grads) {
    if (grads[0]) AccumulateLeaf(leaf, std::move(grads[0]));
    return std::vector<Tensor>{};
  };
  tensor.impl_->accumulator = node;
  return node;
}

void Tape::Attach(std::string_view name, std::span<const Tensor> inputs,
                  std::span<Tensor> outputs, BackwardFn backward) {
  if (!grad_enabled_) return;
  auto node = emitter_->Make<GradNode>();
  node->next.reserve(inputs.size());
  bool needed = false;
  for (const Tensor& input : inputs) {
    Edge edge;
    if (input) edge = Edge{GradientEdge(input), input.impl_->output};
    needed = needed || edge.node != nullptr;
    node->next.push_back(std::move(edge));
  }
  if (!needed) return;
  node->name = name;
  node->sequence = next_sequence_++;
  node->outputs = static_cast<uint32_t>(outputs.size());
  node->backward = std::move(backward);
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    outputs[i].impl_->node = node;
    outputs[i].impl_->output = i;
  }
}

void Tape::Attach(std::string_view name, std::initializer_list<Tensor> inputs, Tensor& output,
                  BackwardFn backward) {
  Attach(name, std::span(inputs.begin(), inputs.size()), std::span(&output, 1),
       std::move(backward));
}

void Tape::set_on_leaf_grad(std::function<void(Tensor& leaf)> callback) {
  on_leaf_grad_ = std::move(callback);
}

// --- accumulation -----------------------------------------------------------------------------

// PyTorch keeps the first gradient when nobody else holds it, else copies it; later ones are
// added in place (accumulate_grad.h, accumulateGrad).
void Tape::AccumulateLeaf(Tensor leaf, Tensor gradient) {
  Tensor& kept = leaf.impl_->grad;
  if (kept) {
    Run(*ops_.add_in_place, {kept, gradient}, {kept});
  } else if (gradient.handles() == 1 && gradient.strides() == leaf.strides()) {
    kept = std::move(gradient);
  } else {
    Tensor copy = Empty(gradient.dtype(), gradient.shape(), Category::kGradients);
    Run(*ops_.copy, {gradient}, {copy});
    kept = std::move(copy);
  }
  if (on_leaf_grad_) on_leaf_grad_(leaf);  // an added gradient dies after its hooks
}

// input_buffer.cpp, accumulate(): in place only when the tensor and its storage are not shared.
Tensor Tape::Sum(Tensor first, const Tensor& second) {
  bool exclusive = first.handles() == 1 && first.impl_->storage.use_count() == 1 &&
                   first.permuted_dense();
  if (exclusive) {
    Run(*ops_.add_in_place, {first, second}, {first});
    return first;
  }
  Tensor sum = Empty(first.dtype(), first.shape(), Category::kActivations);
  Run(*ops_.add, {first, second}, {sum});
  return sum;
}

// --- engine -----------------------------------------------------------------------------------

// What a backward pass knows of a node stands in the node. An accumulator may also be in the graph
// of an outer pass (recomputation), whose entries are put aside meanwhile.
struct Tape::GraphTask {
  struct Outer {
    std::shared_ptr<GradNode> node;
    const void* task;
    int dependencies;
    std::vector<Tensor> buffer;
  };
  std::vector<Outer> outer;
  std::vector<std::shared_ptr<GradNode>> ready;  // a heap, highest sequence first

  ~GraphTask() {
    for (Outer& o : outer) {
      o.node->task = o.task;
      o.node->dependencies = o.dependencies;
      o.node->buffer = std::move(o.buffer);
    }
  }

  static bool Later(const std::shared_ptr<GradNode>& a,
                    const std::shared_ptr<GradNode>& b) {
    return a->sequence < b->sequence;
  }
  void Push(std::shared_ptr<GradNode> node) {
    ready.push_back(std::move(node));
    std::push_heap(ready.begin(), ready.end(), Later);
  }
  std::shared_ptr<GradNode> Pop() {
    std::pop_heap(ready.begin(), ready.end(), Later);
    auto node = std::move(ready.back());
    ready.pop_back();
    return node;
  }
  // True the first time.
  bool Enter(const std::shared_ptr<GradNode>& node) {
    if (node->task == this) return false;
    if (node->task != nullptr) {
      outer.push_back({node, node->task, node->dependencies, std::move(node->buffer)});
    }
    node->task = this;
    node->dependencies = 0;
    node->buffer.clear();
    return true;
  }
  void CountDependencies(const std::vector<std::shared_ptr<GradNode>>& roots) {
    std::vector<GradNode*> stack;
    for (const auto& root : roots) stack.push_back(root.get());
    while (!stack.empty()) {
      GradNode* node = stack.back();
      stack.pop_back();
      for (const Edge& edge : node->next) {
        if (!edge.node) continue;
        if (Enter(edge.node)) stack.push_back(edge.node.get());
        ++edge.node->dependencies;
      }
    }
  }
  std::vector<Tensor>& BufferOf(GradNode& node) {
    if (node.buffer.empty()) node.buffer.resize(node.outputs);
    return node.buffer;
  }
};

void Tape::Backward(Tensor root, Tensor gradient) {
  if (!gradient) gradient = Full(root.dtype(), root.shape(), 1.0, Category::kActivations);
  std::vector<Tensor> roots, gradients;
  roots.push_back(std::move(root));
  gradients.push_back(std::move(gradient));
  Backward(std::move(roots), std::move(gradients));
}

void Tape::Backward(std::vector<Tensor> roots, std::vector<Tensor> gradients) {
  GraphTask task;
  std::vector<std::shared_ptr<GradNode>> starts;
  for (size_t i = 0; i < roots.size(); ++i) {
    auto node = GradientEdge(roots[i]);
    if (!node) throw std::logic_error("backward from a tensor that needs no gradient");
    task.Enter(node);
    Tensor& slot = task.BufferOf(*node)[roots[i].impl_->output];
    slot = slot ? Sum(std::move(slot), gradients[i]) : std::move(gradients[i]);
    if (std::find(starts.begin(), starts.end(), node) == starts.end()) starts.push_back(node);
  }
  roots.clear();
  gradients.clear();
  task.CountDependencies(starts);
  for (auto& node : starts) {
    if (node->dependencies == 0) task.Push(std::move(node));
  }
  starts.clear();
  NoGrad guard(*this);
  while (!task.ready.empty()) {
    auto node = task.Pop();
    std::vector<Tensor> incoming = std::move(task.BufferOf(*node));
    node->buffer.clear();
    node->task = nullptr;
    std::vector<Tensor> outgoing = node->backward(std::move(incoming));
    // Saved tensors die here. An accumulator saves nothing, and may also be in the graph of an
    // outer backward pass (recomputation).
    if (!node->next.empty()) node->backward = nullptr;
    for (size_t i = 0; i < node->next.size(); ++i) {
      Edge edge = std::move(node->next[i]);
      if (!edge.node) continue;
      if (i < outgoing.size() && outgoing[i]) {
        Tensor gradient = std::move(outgoing[i]);
        Tensor& slot = task.BufferOf(*edge.node)[edge.input];
        slot = slot ? Sum(std::move(slot), gradient) : std::move(gradient);
      }
      if (--edge.node->dependencies == 0) task.Push(std::move(edge.node));
    }
  }
}

}  // namespace hbmtune
