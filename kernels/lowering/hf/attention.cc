#include "kernels/lowering/hf/modules.h"

namespace hbmtune::lowering {
namespace {

Tensor RepeatKv(Aten& aten, const Tensor& x, int64_t groups) {
  if (groups == 1) return x;
  const Dims s = x.shape();
  Tensor expanded = aten.Expand(aten.Unsqueeze(x, 2), {s[0], s[1], groups, s[2], s[3]});
  return aten.Reshape(std::move(expanded), {s[0], s[1] * groups, s[2], s[3]});
}

// Softmax and the cast back. GPT-2 does it in the scores' dtype (fp32 under autocast), in two
// statements, the first of which lets go of the scores.
Tensor Probabilities(Aten& aten, const AttentionCall& call, Tensor& weights, const Tensor& q,
                     const Tensor& v) {
  if (!call.gpt2) return aten.To(aten.Softmax(weights, Dtype::kF32), q.dtype());
  Tensor soft = aten.Softmax(weights, aten.autocast() ? Dtype::kF32 : weights.dtype());
  weights = std::move(soft);
  return aten.To(weights, v.dtype());
}

std::pair<Tensor, Tensor> Eager(Aten& aten, const AttentionCall& call, const Tensor& q,
                                const Tensor& k, const Tensor& v, const Tensor& mask) {
  Tensor keys = RepeatKv(aten, k, call.groups);
  Tensor values = RepeatKv(aten, v, call.groups);
  Tensor weights = aten.MulScalar(aten.Matmul(q, aten.Transpose(keys, 2, 3)), call.scale);
  if (mask) {
    Tensor masked = aten.Add(weights, mask);
    weights = std::move(masked);
  }
  Tensor probabilities = Probabilities(aten, call, weights, q, v);
  weights = std::move(probabilities);
  if (call.dropout > 0) {
    Tensor dropped = aten.Dropout(weights, call.dropout);
    weights = std::move(dropped);
  }
  Tensor out = aten.Matmul(weights, values);
  Tensor transposed = aten.Transpose(out, 1, 2);
  if (!call.gpt2) transposed = aten.Contiguous(std::move(transposed));
  out = std::move(transposed);
  keys = {};
  values = {};
  return {std::move(out), std::move(weights)};
}

}  // namespace

std::pair<Tensor, Tensor> ApplyAttention(Aten& aten, const AttentionCall& call, const Tensor& q,
                                         const Tensor& k, const Tensor& v, const Tensor& mask) {
  if (call.eager) return Eager(aten, call, q, k, v, mask);
  Tensor out = aten.Sdpa(q, k, v, {call.scale, call.dropout, true});
  const Dims shape = out.shape();
  Tensor same = aten.Reshape(std::move(out), shape);
  return {aten.Contiguous(aten.Transpose(std::move(same), 1, 2)), {}};
}

}  // namespace hbmtune::lowering
