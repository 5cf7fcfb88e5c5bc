#include "kernels/lowering/fused/layer.h"

#include "kernels/lowering/fused/attention.h"
#include "kernels/lowering/fused/mlp.h"
#include "kernels/lowering/fused/norm.h"

namespace hbmtune::lowering {
namespace {

Dtype NormDtype(const Context& context) {
  return context.config.fp32.norms ? context.statistics() : context.compute;
}

bool IsGpt2(const Context& context) {
  return context.model().architecture == Architecture::kGpt2;
}

std::vector<LinearLayer> FindAll(Context& context, const std::string& prefix,
                                 std::initializer_list<const char*> names) {
  std::vector<LinearLayer> layers;
  for (const char* name : names) layers.push_back(FindLinear(context, prefix + name));
  return layers;
}

// The layers over a norm's output, which ends here: the backward pass makes it again.
std::vector<Tensor> Project(Context& context, Normed& normed,
                            const std::vector<LinearLayer>& layers) {
  const Normed input = std::exchange(normed, {});
  return LinearGroup(context, input.value, layers, Category::kActivations, input.remake);
}

// Falcon: attention and MLP read the norm of the same x; with two norms each its own.
Tensor ParallelLayer(Context& context, const std::string& prefix, Tensor x) {
  const bool two = context.model().separate_norms;
  const LinearLayer qkv = FindLinear(context, prefix + ".self_attention.query_key_value");
  const LinearLayer inner = FindLinear(context, prefix + ".mlp.dense_h_to_4h");
  Tensor residual;
  std::vector<Tensor> products;
  if (two) {
    Branches branches = NormWithResidual(context, x,
                                         {FindNorm(context, prefix + ".ln_attn"),
                                          FindNorm(context, prefix + ".ln_mlp")},
                                         NormDtype(context));
    residual = std::move(branches.residual);
    products.push_back(std::move(Project(context, branches.normed[0], {qkv})[0]));
    products.push_back(std::move(Project(context, branches.normed[1], {inner})[0]));
  } else {
    Branches branches = NormWithResidual(
        context, x, {FindNorm(context, prefix + ".input_layernorm")}, NormDtype(context));
    residual = std::move(branches.residual);
    products = Project(context, branches.normed[0], {qkv, inner});
  }
  x = {};
  Tensor heads = Attention(context, {std::move(products[0])});
  Tensor attended =
      BranchEnd(context, std::move(heads), FindLinear(context, prefix + ".self_attention.dense"));
  Tensor expanded = GeluDown(context, std::move(products[1]),
                             FindLinear(context, prefix + ".mlp.dense_4h_to_h"), false);
  std::vector<Tensor> branches;
  branches.push_back(Dropout(context, std::move(attended), kAttentionDropout));
  branches.push_back(Dropout(context, std::move(expanded), kMlpDropout));
  return AddResidual(context, residual, std::move(branches));
}

}  // namespace

Tensor AttentionBlock(Context& context, const std::string& prefix, Tensor x) {
  const bool gpt2 = IsGpt2(context);
  Branches branches = NormWithResidual(
      context, x, {FindNorm(context, prefix + (gpt2 ? ".ln_1" : ".input_layernorm"))},
      NormDtype(context));
  x = {};
  std::vector<Tensor> products = Project(
      context, branches.normed[0],
      gpt2 ? FindAll(context, prefix, {".attn.c_attn"})
           : FindAll(context, prefix,
                     {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"}));
  Tensor heads = Attention(context, std::move(products));
  Tensor branch = BranchEnd(
      context, std::move(heads),
      FindLinear(context, prefix + (gpt2 ? ".attn.c_proj" : ".self_attn.o_proj")));
  return AddResidual(context, branches.residual, {Dropout(context, branch, kAttentionDropout)});
}

Tensor MlpBlock(Context& context, const std::string& prefix, Tensor x) {
  const bool gpt2 = IsGpt2(context);
  Branches branches = NormWithResidual(
      context, x, {FindNorm(context, prefix + (gpt2 ? ".ln_2" : ".post_attention_layernorm"))},
      NormDtype(context));
  x = {};
  Tensor branch;
  if (gpt2) {
    auto inner =
        Project(context, branches.normed[0], FindAll(context, prefix, {".mlp.c_fc"}));
    branch = GeluDown(context, std::move(inner[0]), FindLinear(context, prefix + ".mlp.c_proj"),
                      true);
  } else {
    auto inner = Project(context, branches.normed[0],
                         FindAll(context, prefix, {".mlp.gate_proj", ".mlp.up_proj"}));
    branch = SiluDown(context, std::move(inner[0]), std::move(inner[1]),
                      FindLinear(context, prefix + ".mlp.down_proj"));
  }
  return AddResidual(context, branches.residual, {Dropout(context, branch, kMlpDropout)});
}

Tensor Layer(Context& context, const std::string& prefix, Tensor x) {
  if (context.model().parallel_block) return ParallelLayer(context, prefix, std::move(x));
  const bool skip = std::exchange(context.skip_output, false);
  Tensor attended = AttentionBlock(context, prefix, std::move(x));
  context.skip_output = skip;
  return MlpBlock(context, prefix, std::move(attended));
}

}  // namespace hbmtune::lowering
