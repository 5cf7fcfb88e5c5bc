#include "kernels/ops/support/attention_tile.h"

#include <string>

namespace hbmtune::ops {

void CheckHeads(const Check& check, const TensorArg& q, const TensorArg& k, const TensorArg& v) {
  for (const TensorArg* tensor : {&q, &k, &v}) {
    check.Floating(*tensor).Rank(*tensor, 4).LastStrideOne(*tensor);
  }
  const int64_t kv_heads = k.shape[2];
  check.That(kv_heads > 0 && q.shape[2] % kv_heads == 0,
             "the heads of q " + ToString(q.shape) + " are not a multiple of those of k " +
                 ToString(k.shape));
  check.Shape(k, {q.shape[0], q.shape[1], kv_heads, q.shape[3]}, q).SameShape(v, k);
}

void CheckHeadGradients(const Check& check, const OpArgs& args, size_t q_index) {
  for (size_t i = 0; i < 3; ++i) {
    check.Floating(check.out(i)).LastStrideOne(check.out(i));
    check.SameShape(check.out(i), args.in[q_index + i]);
  }
}

void CheckAttentionAttrs(const Check& check, const OpArgs& args, size_t key_index) {
  const auto [scale, causal, window, dropout, site, documents] =
      args.attrs.As<AttentionAttrs>();
  check.That(scale > 0, "scale " + std::to_string(scale) + " is not positive");
  check.That(window >= 0, "window " + std::to_string(window) + " is negative");
  check.That(dropout >= 0 && dropout < 1,
             "dropout " + std::to_string(dropout) + " is not in [0, 1)");
  if (dropout > 0) {
    check.That(check.has_in(key_index), "dropout needs the key of random_key as an input");
    const TensorArg& key = check.in(key_index);
    check.Dtype(key, Dtype::kI64).Shape(key, {2}, key);
  }
  if (documents == 0) return;
  check.That(causal != 0, "documents need a causal mask");
  check.That(check.has_in(key_index + (dropout > 0)), "documents need starts as the last input");
  CheckStarts(check, args.in.back(), check.in(key_index == 3 ? 0 : 1));
}

std::string_view FirstOptionalName(const OpArgs& args) {
  return args.attrs.As<AttentionAttrs>().dropout > 0 ? "key?" : "starts?";
}

Cost AttentionCost(const OpArgs& args, const TensorArg& q, int products) {
  const auto attrs = args.attrs.As<AttentionAttrs>();
  Cost cost = StreamCost(args, 0, CostClass::kAttention);
  const auto length = static_cast<double>(q.shape[1]);
  double keys = attrs.causal ? (length + 1) / 2 : length;
  if (attrs.window > 0) keys = std::min(keys, static_cast<double>(attrs.window));
  const double rows = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2]);
  cost.flops = 2.0 * products * rows * keys * static_cast<double>(q.shape[3]);
  cost.m = q.shape[1];
  cost.n = q.shape[1];
  cost.k = q.shape[3];
  return cost;
}

AttentionShape AttentionShape::Of(const OpArgs& args, const TensorArg& q, const TensorArg& k) {
  const auto attrs = args.attrs.As<AttentionAttrs>();
  return {attrs,      q.shape[0], q.shape[1],
          q.shape[2], k.shape[2], q.shape[3],
          attrs.documents ? args.in.back().as<int64_t>() : nullptr};
}

std::optional<DropoutMask> AttentionDropout(const OpArgs& args, size_t key_index) {
  const auto attrs = args.attrs.As<AttentionAttrs>();
  if (attrs.dropout == 0) return std::nullopt;
  return DropoutMask::Of(args.in[key_index].as<int64_t>(), attrs.site, attrs.dropout);
}

}  // namespace hbmtune::ops
