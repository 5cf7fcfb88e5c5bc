#include <numeric>

#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"

// scaled_dot_product_attention as PyTorch's CUDA build runs it without a mask: the flash kernel
// for 16 bit, CUTLASS's memory-efficient one for fp32, with what each takes for itself.
namespace hbmtune::lowering {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// [B, H, S, D] seen as the kernel's [B, S, H, D], or back.
Tensor Swapped(Tape& tape, const Tensor& t) {
  Dims shape = t.shape(), strides = t.strides();
  std::swap(shape[1], shape[2]);
  std::swap(strides[1], strides[2]);
  return tape.ViewOf(t, shape, strides);
}

// Strides of [B, H, S, D] that lies in memory as [B, S, H, D].
Dims KernelStrides(const Dims& shape) {
  return {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
}

Attrs AttentionAttrsOf(const Aten::Attention& attention) {
  ops::AttentionAttrs attrs;
  attrs.scale = attention.scale;
  attrs.causal = attention.causal;
  attrs.dropout = attention.dropout;
  return Attrs::Of(attrs);
}

}  // namespace

Tensor Aten::Sdpa(Tensor query, Tensor key, Tensor value, const Attention& attention) {
  Tensor v = CastForProduct(value);
  Tensor k = CastForProduct(key);
  Tensor q = CastForProduct(query);
  const bool flash = IsHalf(q.dtype());
  const Dims shape = q.shape();
  Node node = Record(flash ? "ScaledDotProductFlashAttentionBackward0"
                           : "ScaledDotProductEfficientAttentionBackward0",
                     {&q, &k, &v});
  Save(node, k);
  Save(node, q);
  Save(node, v);
  const double seed = attention.dropout > 0 ? static_cast<double>(NextSeed()) : 0;
  Tensor out, lse, random, unused;
  if (flash) {
    out = NewStrided(q.dtype(), shape, KernelStrides(shape));
    lse = New(Dtype::kF32, {shape[0], shape[1], shape[2]});
    random = Full(Dtype::kI64, {2}, seed);
    unused = Scratch(Dtype::kI64, {1});
  } else {
    random = Full(Dtype::kI64, {1}, seed);
    unused = Scratch(Dtype::kI64, {1});
    out = NewStrided(q.dtype(), shape, KernelStrides(shape));
    lse = New(Dtype::kF32, {shape[0], shape[1], RoundUp(shape[2], 32)});
  }
  Tensor lse_rows = tape_.ViewOf(lse, {shape[0], shape[1], shape[2]}, lse.strides());
  std::vector<Tensor> in{Swapped(tape_, q), Swapped(tape_, k), Swapped(tape_, v)};
  if (attention.dropout > 0) in.push_back(tape_.ViewOf(random, {2}, {flash ? 1 : 0}));
  const std::vector<Tensor> results{Swapped(tape_, out), lse_rows};
  tape_.Run(ops::kAttentionTiled, in, results, AttentionAttrsOf(attention));
  lse_rows = {};
  in.clear();
  Save(node, lse);
  Save(node, out);
  Save(node, random);
  Save(node, unused);
  Finish(std::move(node), {&q, &k, &v}, out, [this, attention, flash](Backward& g) {
    return flash ? FlashBackward(g, attention) : EfficientBackward(g, attention);
  });
  lse = {};
  random = {};
  unused = {};
  q = {};
  k = {};
  v = {};
  return out;
}

// dq, dk, dv as views of [B, S, H, D] tensors from the tiled kernel; `delta` is [B, H, S].
Aten::Tensors Aten::RunAttentionBackward(Backward& g, const Attention& attention,
                                         const Tensors& gradients, const Tensor& delta,
                                         bool flash) {
  const Tensor& q = g.saved[1];
  const Dims rows{q.shape()[0], q.shape()[1], q.shape()[2]};
  const Tensor& lse = g.saved[3];
  Tensors in{Swapped(tape_, g.grads[0]), Swapped(tape_, q), Swapped(tape_, g.saved[0]),
             Swapped(tape_, g.saved[2]), Swapped(tape_, g.saved[4]),
             tape_.ViewOf(lse, rows, lse.strides())};
  if (attention.dropout > 0) in.push_back(tape_.ViewOf(g.saved[5], {2}, {flash ? 1 : 0}));
  Tensors out{gradients[0], gradients[1], gradients[2], delta};
  tape_.Run(ops::kAttentionTiledBackward, in, out, AttentionAttrsOf(attention));
  Tensors views;
  for (const Tensor& gradient : gradients) {
    Tensor swapped = Swapped(tape_, gradient);
    views.push_back(tape_.Alias(gradient, swapped.shape(), swapped.strides()));
  }
  return views;
}

namespace {

// Partial sums of dq by tile of 64 keys, and a lock for each (kernel_backward.h, workspace_size).
int64_t EfficientWorkspace(const Tensor& q) {
  const Dims& s = q.shape();
  const int64_t rows = RoundUp(s[2], 64);
  return s[0] * s[1] * (rows * (s[3] <= 64 ? 64 : 128) + rows / 16);
}

// [B, S, H, D] of a saved [B, H, S, D].
Dims KernelShape(const Tensor& t) {
  return {t.shape()[0], t.shape()[2], t.shape()[1], t.shape()[3]};
}

}  // namespace

// flash_api.cpp, mha_bwd: an fp32 accumulator of dq, the row sums, and K and V gradients of every
// query head where heads share them.
Aten::Tensors Aten::FlashBackward(Backward& g, const Attention& attention) {
  const Tensor &k = g.saved[0], &q = g.saved[1];
  const int64_t batch = q.shape()[0], heads = q.shape()[1], rows = RoundUp(q.shape()[2], 128);
  const int64_t depth = RoundUp(q.shape()[3], 32);
  Tensors gradients{New(q.dtype(), KernelShape(q)), New(q.dtype(), KernelShape(k)),
                    New(q.dtype(), KernelShape(k))};
  Tensor sums = New(Dtype::kF32, {batch, heads, rows});
  Tensor accumulator = Scratch(Dtype::kF32, {batch, rows, heads, depth});
  Tensor wide_k, wide_v;
  if (heads != k.shape()[1]) {
    const Dims wide{batch, k.shape()[2], heads, q.shape()[3]};
    wide_k = Scratch(q.dtype(), wide);
    wide_v = Scratch(q.dtype(), wide);
  }
  Tensor delta = tape_.ViewOf(sums, {batch, heads, q.shape()[2]}, sums.strides());
  Tensors views = RunAttentionBackward(g, attention, gradients, delta, true);
  wide_v = {};
  wide_k = {};
  accumulator = {};
  delta = {};
  sums = {};
  return views;
}

// attention_backward.cu, _efficient_attention_backward.
Aten::Tensors Aten::EfficientBackward(Backward& g, const Attention& attention) {
  const Tensor &k = g.saved[0], &q = g.saved[1];
  const int64_t batch = q.shape()[0], heads = q.shape()[1], rows = q.shape()[2];
  Tensors gradients{New(q.dtype(), KernelShape(q)), New(q.dtype(), KernelShape(k)),
                    New(q.dtype(), KernelShape(k))};
  Tensor wide_k, wide_v;
  if (heads != k.shape()[1]) {
    const Dims wide{batch, k.shape()[2], heads, q.shape()[3]};
    wide_k = Scratch(q.dtype(), wide);
    wide_v = Scratch(q.dtype(), wide);
  }
  Tensor product = Scratch(q.dtype(), KernelShape(q));
  Tensor sums = Scratch(Dtype::kF32, {batch, rows, heads});
  Tensor delta = New(Dtype::kF32, {batch, heads, rows});
  sums = {};
  product = {};
  Tensor workspace = Scratch(Dtype::kF32, {EfficientWorkspace(q)});
  Tensors views = RunAttentionBackward(g, attention, gradients, delta, false);
  delta = {};
  workspace = {};
  wide_v = {};
  wide_k = {};
  return views;
}

}  // namespace hbmtune::lowering
