#include <algorithm>

#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/aten_nll_loss/aten_nll_loss.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_reduce/aten_reduce.h"
#include "kernels/ops/aten_softmax/aten_softmax.h"
#include "kernels/ops/copy/copy.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/layer_norm/layer_norm.h"

namespace hbmtune::lowering {

Tensor Aten::MeanLast(Tensor a) {
  Node node = Record("MeanBackward1", {&a});
  Dims shape = a.shape();
  const int64_t width = shape.back();
  shape[shape.rank() - 1] = 1;
  Tensor out = New(a.dtype(), shape);
  tape_.Run(ops::kAtenSum, {a}, {out}, Attrs::Of(ops::AtenSumAttrs{1.0 / width}));
  Finish(std::move(node), {&a}, out, [this, from = a.shape(), width](Backward& g) {
    // The expanded gradient, divided.
    Dims strides = g.grads[0].strides();
    strides[strides.rank() - 1] = 0;
    Tensor expanded = tape_.ViewOf(g.grads[0], from, strides);
    return Tensors{Pointwise(ops::kAtenMulScalar, expanded, {}, expanded.dtype(), 1.0 / width)};
  });
  a = {};
  return out;
}

// Writes both parts into one tensor; gradients are views of the parts.
Tensor Aten::CatLast(Tensor a, Tensor b) {
  Node node = Record("CatBackward0", {&a, &b});
  const int last = static_cast<int>(a.shape().rank()) - 1;
  const int64_t left = a.shape().back(), right = b.shape().back();
  Dims shape = a.shape();
  shape[last] = left + right;
  Tensor out = New(a.dtype(), shape);
  tape_.Run(ops::kCopy, {a}, {tape_.ViewOf(out, a.shape(), out.strides())});
  tape_.Run(ops::kCopy, {b}, {tape_.ViewOf(out, b.shape(), out.strides(), left)});
  Finish(std::move(node), {&a, &b}, out,
         [this, from_a = a.shape(), from_b = b.shape(), left](Backward& g) {
           const Tensor& grad = g.grads[0];
           return Tensors{tape_.Alias(grad, from_a, grad.strides()),
                          tape_.Alias(grad, from_b, grad.strides(), left * grad.strides().back())};
         });
  a = {};
  b = {};
  return out;
}

// The kernel reads fp16 and writes fp32 at once; bf16 is converted first (SoftMax.cpp).
Tensor Aten::Softmax(Tensor a, Dtype dtype) {
  const bool fused = a.dtype() == Dtype::kF16 && dtype == Dtype::kF32;
  Tensor input = fused ? a : To(a, dtype);
  Node node = Record("SoftmaxBackward0", {&input});
  Tensor out = New(dtype, input.shape());
  tape_.Run(ops::kAtenSoftmax, {input}, {out});
  Save(node, out);
  Finish(std::move(node), {&input}, out, [this, to = input.dtype()](Backward& g) {
    const Tensor& grad = g.grads[0];
    Tensor dx = New(to, grad.shape());
    Tensor product = Pointwise(ops::kAtenMul, grad, g.saved[0], grad.dtype());
    tape_.Run(ops::kAtenSoftmaxBackward, {grad, g.saved[0]}, {dx});
    return Tensors{std::move(dx)};
  });
  input = {};
  a = {};
  return out;
}

Tensor Aten::LayerNorm(Tensor x, Tensor weight, Tensor bias, double eps) {
  bias = CastToFp32(std::move(bias));
  weight = CastToFp32(std::move(weight));
  x = CastToFp32(std::move(x));
  Node node = Record("NativeLayerNormBackward0", {&x, &weight, &bias});
  Save(node, bias);
  Save(node, x);
  Save(node, weight);
  const int64_t rows = x.elements() / x.shape().back();
  Tensor out = New(x.dtype(), x.shape());
  Tensor mean = New(Dtype::kF32, {rows});
  Tensor rstd = New(Dtype::kF32, {rows});
  tape_.Run(ops::kLayerNorm, {x, weight, bias}, {out, mean, rstd},
            Attrs::Of(ops::NormAttrs{eps}));
  Save(node, mean);
  Save(node, rstd);
  Finish(std::move(node), {&x, &weight, &bias}, out, [this, rows](Backward& g) {
    const Tensor& grad = g.grads[0];
    const Tensor& x = g.saved[1];
    const Tensor& weight = g.saved[2];
    Tensor dx = New(x.dtype(), x.shape());
    if (!g.needs(1)) {
      tape_.Run(ops::kLayerNormBackward, {grad, x, weight, g.saved[3], g.saved[4]}, {dx},
                Attrs::Of(ops::NormBackwardAttrs{}));
      return Tensors{std::move(dx), {}, {}};
    }
    const Category before = std::exchange(category_, Category::kGradients);
    Tensor dweight = New(weight.dtype(), weight.shape());
    Tensor dbias = New(weight.dtype(), weight.shape());
    category_ = before;
    // PyTorch's kernel has none; the op of this stack keeps its own in host memory.
    Tensor partials = tape_.Empty(Dtype::kF32, {2 * ops::NormPartials(rows), x.shape().back()},
                                  category_, MemorySpace::kPinned);
    tape_.Run(ops::kLayerNormBackward, {grad, x, weight, g.saved[3], g.saved[4]},
              {dx, dweight, dbias, partials}, Attrs::Of(ops::NormBackwardAttrs{}));
    return Tensors{std::move(dx), std::move(dweight), std::move(dbias)};
  });
  mean = {};
  rstd = {};
  x = {};
  weight = {};
  bias = {};
  return out;
}

namespace {

// EmbeddingBackwardKernel.cu: over 3,072 indices it sorts them and sums by segments. The sizes
// of CUB's own scratch fit recordings of 3,200 to 32,768 indices.
struct EmbeddingSort {
  int64_t indices, segments, partial_segments, sort_bytes, scan_bytes;

  EmbeddingSort(int64_t count, int64_t vocab)
      : indices(count),
        segments(std::min(count, vocab)),
        partial_segments(count / 10 + segments),
        sort_bytes(2 * ((8 * count + 255) / 256 * 256) + 4607 + 1024 * ((count + 3839) / 3840)),
        scan_bytes(count > 16384 ? 1535 : 1279) {}
};

}  // namespace

Tensor Aten::Embedding(Tensor ids, Tensor weight) {
  Node node = Record("EmbeddingBackward0", {&weight});
  Save(node, ids);
  const Dims from = weight.shape();
  const int64_t width = from.back();
  std::vector<int64_t> extents(ids.shape().begin(), ids.shape().end());
  extents.push_back(width);
  const Dims shape{std::span<const int64_t>(extents)};
  Tensor out = New(weight.dtype(), shape);
  tape_.Run(ops::kEmbedding, {ids, weight}, {out});
  Finish(std::move(node), {&weight}, out, [this, from, width](Backward& g) {
    const Tensor& grad = g.grads[0];
    const Tensor& ids = g.saved[0];
    const bool sorts = ids.elements() > 3072;
    const EmbeddingSort sizes(ids.elements(), from[0]);
    const Category before = std::exchange(category_, Category::kWorkspace);
    Tensors scratch;
    if (sorts) {
      scratch.push_back(Scratch(Dtype::kI64, {sizes.indices}));
      scratch.push_back(Scratch(Dtype::kI64, {sizes.indices}));
      Tensor range = Scratch(Dtype::kI64, {sizes.indices});
      Scratch(Dtype::kU8, {sizes.sort_bytes});
    }
    category_ = Category::kGradients;
    Tensor dweight = Full(grad.dtype(), from, 0);
    category_ = Category::kWorkspace;
    if (sorts) {
      scratch.push_back(Scratch(Dtype::kI64, {sizes.indices}));
      scratch.push_back(Scratch(Dtype::kI64, {1}));
      {
        Tensor offsets = Scratch(Dtype::kI64, {sizes.indices});
        Scratch(Dtype::kU8, {sizes.scan_bytes});
      }
      scratch.push_back(Scratch(Dtype::kI64, {sizes.segments}));
      scratch.push_back(Scratch(Dtype::kI64, {sizes.segments}));
      Scratch(Dtype::kU8, {sizes.scan_bytes});
      scratch.push_back(Scratch(Dtype::kI64, {1}));
      scratch.push_back(Scratch(Dtype::kI64, {sizes.partial_segments}));
      scratch.push_back(Scratch(Dtype::kF32, {sizes.partial_segments, width}));
    }
    tape_.Run(ops::kEmbeddingBackward, {grad, ids}, {dweight},
              Attrs::Of(ops::EmbeddingBackwardAttrs{}));
    while (!scratch.empty()) scratch.pop_back();
    category_ = before;
    return Tensors{std::move(dweight)};
  });
  return out;
}

Tensor Aten::CrossEntropy(Tensor logits, Tensor targets) {
  Tensor log_probabilities;
  {
    Node node = Record("LogSoftmaxBackward0", {&logits});
    log_probabilities = New(logits.dtype(), logits.shape());
    tape_.Run(ops::kAtenLogSoftmax, {logits}, {log_probabilities});
    Save(node, log_probabilities);
    Finish(std::move(node), {&logits}, log_probabilities, [this](Backward& g) {
      Tensor dx = New(g.grads[0].dtype(), g.grads[0].shape());
      tape_.Run(ops::kAtenLogSoftmaxBackward, {g.grads[0], g.saved[0]}, {dx});
      return Tensors{std::move(dx)};
    });
  }
  Node node = Record("NllLossBackward0", {&log_probabilities});
  Save(node, log_probabilities);
  Save(node, targets);
  Tensor loss = New(Dtype::kF32, {});
  Tensor count = New(Dtype::kF32, {});
  const Attrs attrs = Attrs::Of(ops::AtenNllLossAttrs{});
  tape_.Run(ops::kAtenNllLoss, {log_probabilities, targets}, {loss, count}, attrs);
  Save(node, count);
  Finish(std::move(node), {&log_probabilities}, loss, [this, attrs](Backward& g) {
    Tensor dx = New(g.saved[0].dtype(), g.saved[0].shape());
    tape_.Run(ops::kAtenNllLossBackward, {g.grads[0], g.saved[1], g.saved[2]}, {dx}, attrs);
    return Tensors{std::move(dx)};
  });
  return loss;
}

}  // namespace hbmtune::lowering
