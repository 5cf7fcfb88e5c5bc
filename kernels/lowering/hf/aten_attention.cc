#include <algorithm>
#include <cmath>

#include "kernels/lowering/hf/aten.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/fill/fill.h"

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

// flash_api.cpp, num_splits_heuristic: keys are split where rows alone do not fill the GPU, into
// the fewest parts within 85 % of the best occupancy.
int64_t FlashSplits(const Dims& shape, int64_t compute_units) {
  auto ceil = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t key_block = shape[3] <= 64 ? 256 : shape[3] <= 128 ? 128 : 64;
  const int64_t keys = ceil(shape[2], key_block), units = 2 * compute_units;
  const int64_t blocks = shape[0] * shape[1] * ceil(shape[2], 64);
  if (blocks >= 0.8f * static_cast<float>(units)) return 1;
  const int64_t most = std::min<int64_t>({128, units, keys});
  auto eligible = [&](int64_t n) { return n == 1 || ceil(keys, n) != ceil(keys, n - 1); };
  auto occupancy = [&](int64_t n) {
    const float waves = static_cast<float>(blocks * n) / static_cast<float>(units);
    return waves / std::ceil(waves);
  };
  float best = 0;
  for (int64_t n = 1; n <= most; ++n) {
    if (eligible(n)) best = std::max(best, occupancy(n));
  }
  for (int64_t n = 1; n <= most; ++n) {
    if (eligible(n) && occupancy(n) >= 0.85f * best) return n;
  }
  return 1;
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
  const bool flash = IsHalf(q.dtype()) && !attention.masked;
  Tensor bias = attention.masked ? MaskBias(q) : Tensor{};
  Node node = Record(flash ? "ScaledDotProductFlashAttentionBackward0"
                           : "ScaledDotProductEfficientAttentionBackward0",
                     {&q, &k, &v});
  Save(node, bias);
  Save(node, k);
  Save(node, q);
  Save(node, v);
  AttentionState state = flash ? FlashState(q, attention) : EfficientState(q, attention, node);
  RunAttention(q, k, v, state, attention);
  Save(node, state.lse);
  Save(node, state.out);
  Save(node, flash ? state.random : state.unused);
  Save(node, flash ? state.unused : state.random);
  Finish(std::move(node), {&q, &k, &v}, state.out, [this, attention, flash](Backward& g) {
    return flash ? FlashBackward(g, attention) : EfficientBackward(g, attention);
  });
  state.lse = {};
  state.random = {};
  state.unused = {};
  bias = {};
  q = {};
  k = {};
  v = {};
  return std::move(state.out);
}

// attention.cpp, convert_boolean_attn_mask and pad_bias: flags become a bias of the query's dtype
// for every sequence, its rows in memory a multiple of 8 apart.
Tensor Aten::MaskBias(const Tensor& q) {
  const int64_t batch = q.shape()[0], rows = q.shape()[2];
  Tensor lowest = Scratch(q.dtype(), {});
  Tensor zero = Scratch(q.dtype(), {});
  Tensor bias = Scratch(q.dtype(), {batch, 1, rows, rows});
  zero = {};
  lowest = {};
  if (rows % 8 == 0) return bias;
  Tensor padded = Scratch(q.dtype(), {batch, 1, rows, RoundUp(rows, 8)});
  bias = {};
  return padded;
}

// flash_api.cpp: the result in the kernel's layout, log-sum-exp, random state (with dropout made
// anew from the generator's).
Aten::AttentionState Aten::FlashState(const Tensor& q, const Attention& attention) {
  const Dims s = q.shape();
  AttentionState state;
  state.out = NewStrided(q.dtype(), s, KernelStrides(s));
  state.lse = New(Dtype::kF32, {s[0], s[1], s[2]});
  const bool drops = attention.dropout > 0;
  const int64_t splits = drops ? 1 : FlashSplits(s, gpu_.compute_units);
  Tensor split_lse, split_out;
  if (splits > 1) {
    split_lse = Scratch(Dtype::kF32, {splits, s[0], s[1], s[2]});
    split_out = Scratch(Dtype::kF32, {splits, s[0], s[1], s[2], RoundUp(s[3], 32)});
  }
  state.random = Full(Dtype::kI64, {2}, 0);
  state.unused = Scratch(Dtype::kI64, {1});
  if (drops) state.random = Full(Dtype::kI64, {2}, static_cast<double>(NextSeed()));
  split_lse = {};
  split_out = {};
  return state;
}

// attention.cu: two seeds first, none with dropout (the generator's own are used; here they stand
// in host memory); log-sum-exp only for a backward pass, rows in multiples of 32.
Aten::AttentionState Aten::EfficientState(const Tensor& q, const Attention& attention,
                                          const Node& node) {
  const Dims s = q.shape();
  AttentionState state;
  if (attention.dropout > 0) {
    state.random = tape_.Empty(Dtype::kI64, {2}, category_, MemorySpace::kPinned);
    tape_.Run(ops::kFill, {}, {state.random},
              Attrs::Of(FillAttrs{static_cast<double>(NextSeed())}));
  } else {
    state.random = Scratch(Dtype::kI64, {1});
    state.unused = Scratch(Dtype::kI64, {1});
  }
  state.out = NewStrided(q.dtype(), s, KernelStrides(s));
  const bool keeps = node.recorded();
  state.lse = tape_.Empty(Dtype::kF32, {s[0], s[1], keeps ? RoundUp(s[2], 32) : s[2]}, category_,
                          keeps ? MemorySpace::kDevice : MemorySpace::kPinned);
  return state;
}

void Aten::RunAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionState& state, const Attention& attention) {
  const Dims s = q.shape();
  Tensors in{Swapped(tape_, q), Swapped(tape_, k), Swapped(tape_, v)};
  if (attention.dropout > 0) in.push_back(state.random);
  Tensors out{Swapped(tape_, state.out),
              tape_.ViewOf(state.lse, {s[0], s[1], s[2]}, {s[1] * s[2], s[2], 1})};
  tape_.Run(ops::kAttentionTiled, in, out, AttentionAttrsOf(attention));
}

// dq, dk, dv as views of [B, S, H, D] tensors from the tiled kernel; `delta` is [B, H, S].
Aten::Tensors Aten::RunAttentionBackward(Backward& g, const Attention& attention,
                                         const Tensors& gradients, const Tensor& delta) {
  const Tensor& q = g.saved[2];
  const Dims rows{q.shape()[0], q.shape()[1], q.shape()[2]};
  const Tensor& lse = g.saved[4];
  Tensors in{Swapped(tape_, g.grads[0]), Swapped(tape_, q), Swapped(tape_, g.saved[1]),
             Swapped(tape_, g.saved[3]), Swapped(tape_, g.saved[5]),
             tape_.ViewOf(lse, rows, DenseStrides(rows))};
  if (attention.dropout > 0) in.push_back(g.saved[g.saved[6] ? 6 : 7]);
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

// Gradients that nobody wants die with the node's code.
void DropUnneeded(const Aten::Backward& g, Aten::Tensors& gradients, Aten::Tensors& views) {
  for (int i = 0; i < 3; ++i) {
    gradients[i] = {};
    if (!g.needs(i)) views[i] = {};
  }
}

}  // namespace

// flash_api.cpp, mha_bwd: an fp32 accumulator of dq, the row sums, and K and V gradients of every
// query head where heads share them.
Aten::Tensors Aten::FlashBackward(Backward& g, const Attention& attention) {
  const Tensor &k = g.saved[1], &q = g.saved[2];
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
  const Dims rows_of_heads{batch, heads, q.shape()[2]};
  Tensor delta = tape_.ViewOf(sums, rows_of_heads, DenseStrides(rows_of_heads));
  Tensors views = RunAttentionBackward(g, attention, gradients, delta);
  wide_v = {};
  wide_k = {};
  accumulator = {};
  delta = {};
  sums = {};
  DropUnneeded(g, gradients, views);
  return views;
}

// attention_backward.cu, _efficient_attention_backward.
Aten::Tensors Aten::EfficientBackward(Backward& g, const Attention& attention) {
  const Tensor &k = g.saved[1], &q = g.saved[2];
  const int64_t batch = q.shape()[0], heads = q.shape()[1], rows = q.shape()[2];
  Tensors gradients{New(q.dtype(), KernelShape(q)), New(q.dtype(), KernelShape(k)),
                    New(q.dtype(), KernelShape(k))};
  Tensor wide_k, wide_v;
  if (heads != k.shape()[1]) {
    const Dims wide{batch, k.shape()[2], heads, q.shape()[3]};
    wide_k = Scratch(q.dtype(), wide);
    wide_v = Scratch(q.dtype(), wide);
  }
  Tensor product, sums;
  if (!IsHalf(q.dtype())) {
    product = Scratch(q.dtype(), KernelShape(q));
    sums = Scratch(Dtype::kF32, {batch, rows, heads});
  }
  Tensor delta = New(Dtype::kF32, {batch, heads, rows});
  sums = {};
  product = {};
  Tensor workspace = Scratch(Dtype::kF32, {EfficientWorkspace(q)});
  Tensors views = RunAttentionBackward(g, attention, gradients, delta);
  delta = {};
  workspace = {};
  wide_v = {};
  wide_k = {};
  DropUnneeded(g, gradients, views);
  return views;
}

}  // namespace hbmtune::lowering
