#include "kernels/lowering/hf/modules.h"
#include "kernels/ops/aten_pointwise/aten_pointwise.h"
#include "kernels/ops/aten_range/aten_range.h"

namespace hbmtune::lowering {
namespace {

// arange(n) + offset: a tensor, and the one that arange itself made.
Tensor Arange(Aten& aten, int64_t count) {
  Tensor range = aten.New(Dtype::kI64, {count});
  aten.tape().Run(ops::kAtenArange, {}, {range});
  return range;
}

Tensor ArangePlus(Aten& aten, int64_t count) {
  Tensor range = Arange(aten, count);
  Tensor sum = aten.AddScalar(range, 0);
  range = {};
  return sum;
}

}  // namespace

Tensor MakePositionIds(Aten& aten, int64_t seq_len) {
  return aten.View(ArangePlus(aten, seq_len), {1, seq_len});
}

// masking_utils.py, find_packed_sequence_indices: differences of the positions, read back once.
void FindPackedSequences(Aten& aten, int64_t batch, int64_t seq_len) {
  Tensor first = aten.Scratch(Dtype::kI64, {batch, 1});
  Tensor joined = aten.Scratch(Dtype::kI64, {batch, seq_len + 1});
  Tensor difference = aten.Scratch(Dtype::kI64, {batch, seq_len});
  joined = {};
  Tensor jumps = aten.Scratch(Dtype::kU8, {batch, seq_len});
  Tensor index = aten.Scratch(Dtype::kI64, {batch, seq_len});
  Tensor widened = aten.Scratch(Dtype::kI64, {batch, seq_len});
  // One row is scanned by CUB, which takes this much for itself.
  if (batch == 1) aten.Scratch(Dtype::kU8, {1279});
  widened = {};
  jumps = {};
  Tensor single = aten.Scratch(Dtype::kU8, {batch});
  Tensor all = aten.Scratch(Dtype::kU8, {});
  aten.tape().HostWait(aten.tape().Record());  // `if` reads `all`
  single = {};
  all = {};
  first = {};
  difference = {};
  index = {};
}

Tensor MakeCausalFlags(Aten& aten, int64_t batch, int64_t seq_len) {
  Tensor batches = Arange(aten, batch);
  Tensor heads = Arange(aten, 1);
  Tensor queries = ArangePlus(aten, seq_len);
  Tensor keys = ArangePlus(aten, seq_len);
  Tensor allowed = aten.Scratch(Dtype::kU8, {seq_len, seq_len});
  batches = {};
  heads = {};
  queries = {};
  keys = {};
  return allowed;
}

Tensor MakeEagerMask(Aten& aten, Dtype dtype, int64_t batch, int64_t seq_len) {
  Tensor allowed = MakeCausalFlags(aten, batch, seq_len);
  Tensor zero = aten.Scratch(dtype, {});
  Tensor lowest = aten.Scratch(dtype, {});
  Tensor mask = aten.New(dtype, {batch, 1, seq_len, seq_len});
  aten.tape().Run(ops::kAtenCausalMask, {}, {mask});
  lowest = {};
  zero = {};
  allowed = {};
  return mask;
}

std::pair<Tensor, Tensor> MakeRotary(Aten& aten, const Tensor& inv_freq, int64_t seq_len,
                                     Dtype dtype) {
  Tensor positions = aten.New(Dtype::kF32, {1, seq_len, 1});
  aten.tape().Run(ops::kAtenArange, {}, {positions});
  Tensor freqs = aten.Mul(std::move(positions), inv_freq);
  Tensor emb = aten.CatLast(freqs, freqs);
  Tensor cos = aten.MulScalar(aten.Map(ops::kAtenCos, emb), 1);
  Tensor sin = aten.MulScalar(aten.Map(ops::kAtenSin, emb), 1);
  Tensor cos_cast = aten.To(cos, dtype);
  Tensor sin_cast = aten.To(sin, dtype);
  freqs = {};
  emb = {};
  cos = {};
  sin = {};
  return {std::move(cos_cast), std::move(sin_cast)};
}

namespace {

Tensor RotateHalf(Aten& aten, const Tensor& x) {
  const int64_t width = x.shape().back();
  Tensor x1 = aten.Slice(x, 3, 0, width / 2);
  Tensor x2 = aten.Slice(x, 3, width / 2, width);
  return aten.CatLast(aten.Neg(x2), x1);
}

Tensor Rotate(Aten& aten, const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor straight = aten.Mul(x, cos);
  Tensor turned = aten.Mul(RotateHalf(aten, x), sin);
  return aten.Add(std::move(straight), std::move(turned));
}

}  // namespace

std::pair<Tensor, Tensor> ApplyRotary(Aten& aten, const Tensor& q, const Tensor& k,
                                      const Tensor& cos, const Tensor& sin) {
  Tensor c = aten.Unsqueeze(cos, 1);
  Tensor s = aten.Unsqueeze(sin, 1);
  Tensor q_embed = Rotate(aten, q, c, s);
  Tensor k_embed = Rotate(aten, k, c, s);
  return {std::move(q_embed), std::move(k_embed)};
}

}  // namespace hbmtune::lowering
