#include "kernels/lowering/fused/attention.h"

#include <cmath>

#include "kernels/ops/attention_materialised/attention_materialised.h"
#include "kernels/ops/attention_tiled/attention_tiled.h"
#include "kernels/ops/rotary/rotary.h"

namespace hbmtune::lowering {
namespace {

// Query heads that share strides with their keys and values, all [batch, tokens, heads, dim].
struct HeadGroup {
  Tensor q, k, v;
  int64_t first_head = 0;
};

// `heads` heads of a [rows, width] tensor from column `column` on.
Tensor Heads(Context& context, const Tensor& x, int64_t column, int64_t heads) {
  const int64_t dim = context.model().head_dim;
  const int64_t width = x.strides()[0];
  return context.tape.ViewOf(x, {context.batch, context.tokens, heads, dim},
                             {context.tokens * width, width, dim, 1}, column);
}

// Falcon groups the rows of its projection by key-value head: the queries of a group, then its
// key, then its value. One group is multi-query.
std::vector<HeadGroup> FalconGroups(Context& context, const Tensor& qkv) {
  const ModelSpec& model = context.model();
  const int64_t queries = model.heads / model.kv_heads;
  std::vector<HeadGroup> groups;
  for (int64_t g = 0; g < model.kv_heads; ++g) {
    const int64_t column = g * (queries + 2) * model.head_dim;
    groups.push_back({Heads(context, qkv, column, queries),
                      Heads(context, qkv, column + queries * model.head_dim, 1),
                      Heads(context, qkv, column + (queries + 1) * model.head_dim, 1),
                      g * queries});
  }
  return groups;
}

std::vector<HeadGroup> GroupsOf(Context& context, const std::vector<Tensor>& projections) {
  const ModelSpec& model = context.model();
  if (projections.size() == 3) {
    return {{Heads(context, projections[0], 0, model.heads),
             Heads(context, projections[1], 0, model.kv_heads),
             Heads(context, projections[2], 0, model.kv_heads), 0}};
  }
  if (model.architecture == Architecture::kFalcon) {
    return FalconGroups(context, projections[0]);
  }
  const int64_t width = model.heads * model.head_dim;
  return {{Heads(context, projections[0], 0, model.heads),
           Heads(context, projections[0], width, model.heads),
           Heads(context, projections[0], 2 * width, model.heads), 0}};
}

void Rotate(Context& context, const std::vector<HeadGroup>& groups, const Tensor& starts,
            bool inverse) {
  if (!context.cos) return;
  for (const HeadGroup& group : groups) {
    for (const Tensor& x : {group.q, group.k}) {
      std::vector<Tensor> in{x, context.cos, context.sin};
      if (starts) in.push_back(starts);
      context.tape.Run(ops::kRotary, in, std::vector<Tensor>{x},
                       Attrs::Of(ops::RotaryAttrs{inverse}));
    }
  }
}

// What one group's kernel saved: log-sum-exp (tiled) or probabilities (materialised).
struct GroupSaved {
  Tensor statistics;
  Tensor key;
};

ops::AttentionAttrs KernelAttrs(const Context& context, const HeadGroup& group,
                                const Tensor& starts) {
  const ModelSpec& model = context.model();
  return {1 / std::sqrt(static_cast<double>(model.head_dim)), 1, model.sliding_window,
          model.attention_dropout, group.first_head, static_cast<bool>(starts)};
}

bool Tiled(const Context& context) { return context.config.attention == AttentionKind::kTiled; }

// The materialised scores keep fp32 under the `softmax` switch.
Tensor Statistics(Context& context, const HeadGroup& group) {
  const int64_t heads = group.q.shape()[2];
  if (Tiled(context)) {
    return Activation(context, context.statistics(), {context.batch, heads, context.tokens});
  }
  const Dtype dtype =
      context.config.fp32.softmax ? context.statistics() : context.compute;
  return Activation(context, dtype, {context.batch, heads, context.tokens, context.tokens});
}

void Forward(Context& context, const HeadGroup& group, const Tensor& o, GroupSaved& saved) {
  std::vector<Tensor> in{group.q, group.k, group.v};
  if (context.model().attention_dropout > 0) {
    saved.key = RandomKey(context);
    in.push_back(saved.key);
  }
  if (context.starts) in.push_back(context.starts);
  saved.statistics = Statistics(context, group);
  const Tensor out[] = {Heads(context, o, group.first_head * context.model().head_dim,
                              group.q.shape()[2]),
                        saved.statistics};
  context.tape.Run(Tiled(context) ? ops::kAttentionTiled : ops::kAttentionMaterialised, in, out,
                   Attrs::Of(KernelAttrs(context, group, context.starts)));
}

void Backward(Context& context, const HeadGroup& group, const HeadGroup& gradient,
              const Tensor& dout, const Tensor& o, const GroupSaved& saved,
              const Tensor& starts) {
  const int64_t heads = group.q.shape()[2];
  const int64_t column = group.first_head * context.model().head_dim;
  std::vector<Tensor> in{Heads(context, dout, column, heads), group.q, group.k, group.v};
  if (Tiled(context)) in.push_back(Heads(context, o, column, heads));
  in.push_back(saved.statistics);
  if (saved.key) in.push_back(saved.key);
  if (starts) in.push_back(starts);
  Tensor workspace = context.tape.Empty(saved.statistics.dtype(), saved.statistics.shape(),
                                        Category::kWorkspace);
  const Tensor out[] = {gradient.q, gradient.k, gradient.v, workspace};
  context.tape.Run(
      Tiled(context) ? ops::kAttentionTiledBackward : ops::kAttentionMaterialisedBackward, in,
      out, Attrs::Of(KernelAttrs(context, group, starts)));
}

std::vector<Tensor> EmptyLike(Context& context, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> fresh;
  for (const Tensor& tensor : tensors) {
    fresh.push_back(Activation(context, tensor.dtype(), tensor.shape()));
  }
  return fresh;
}

std::vector<Tensor> DetachAll(Context& context, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> detached;
  for (const Tensor& tensor : tensors) detached.push_back(context.tape.Detach(tensor));
  return detached;
}

}  // namespace

Tensor Attention(Context& context, std::vector<Tensor> projections) {
  const ModelSpec& model = context.model();
  Tensor o = Activation(context, context.compute,
                        {context.rows(), model.heads * model.head_dim});
  std::vector<Tensor> values = DetachAll(context, projections);
  std::vector<GroupSaved> saved;
  {
    const std::vector<HeadGroup> groups = GroupsOf(context, values);
    Rotate(context, groups, context.starts, false);
    for (const HeadGroup& group : groups) {
      Forward(context, group, o, saved.emplace_back());
    }
  }
  Saved kept_o;
  if (Tiled(context)) kept_o = Saved(context, o);
  std::vector<Saved> kept;
  for (const Tensor& value : values) kept.emplace_back(context, value);
  values.clear();
  std::vector<Tensor> outputs{std::move(o)};
  auto backward = [&context, kept = std::move(kept), saved = std::move(saved),
                   kept_o = std::move(kept_o),
                   starts = context.starts](std::vector<Tensor> grads) mutable {
    std::vector<Tensor> values;
    for (Saved& value : kept) values.push_back(value.Take(context));
    Tensor o = kept_o.Take(context);
    std::vector<Tensor> gradients = EmptyLike(context, values);
    std::vector<HeadGroup> groups = GroupsOf(context, values);
    const std::vector<HeadGroup> into = GroupsOf(context, gradients);
    values.clear();
    for (size_t i = 0; i < groups.size(); ++i) {
      Backward(context, groups[i], into[i], grads[0], o, saved[i], starts);
      saved[i] = {};
    }
    groups.clear();
    grads.clear();
    o = {};
    Rotate(context, into, starts, true);
    return gradients;
  };
  context.tape.Attach("attention", projections, outputs, std::move(backward));
  return std::move(outputs[0]);
}

}  // namespace hbmtune::lowering
