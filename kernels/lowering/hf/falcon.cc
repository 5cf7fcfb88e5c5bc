#include <cmath>
#include <string>

#include "kernels/lowering/hf/model.h"
#include "kernels/ops/aten_range/aten_range.h"

// models/falcon/modeling_falcon.py: the 7B form (multi-query) and the new decoder (grouped K, V).
namespace hbmtune::lowering {
namespace {

struct FalconLayer {
  NormModule norm, mlp_norm;  // mlp_norm of the new decoder with two norms
  LinearModule qkv, dense, up, down;
  ModuleTag self, attention, mlp, activation;
};

class Falcon final : public HfModel {
 public:
  Falcon(Aten& aten, const Workload& workload, const TrainConfig& config)
      : HfModel(aten, workload, config) {
    const int64_t hidden = model_.hidden;
    const int64_t width = (model_.heads + 2 * model_.kv_heads) * model_.head_dim;
    embedding_ = builder_.Parameter("transformer.word_embeddings.weight", {model_.vocab, hidden});
    for (int64_t i = 0; i < model_.layers; ++i) {
      const std::string name = "transformer.h." + std::to_string(i) + ".";
      FalconLayer layer;
      layer.qkv = Linear(name + "self_attention.query_key_value", hidden, width);
      layer.dense = Linear(name + "self_attention.dense", hidden, hidden);
      layer.up = Linear(name + "mlp.dense_h_to_4h", hidden, model_.ffn);
      layer.down = Linear(name + "mlp.dense_4h_to_h", model_.ffn, hidden);
      layer.norm = builder_.Norm(
          name + (model_.separate_norms ? "ln_attn" : "input_layernorm"), hidden, true);
      if (model_.separate_norms) layer.mlp_norm = builder_.Norm(name + "ln_mlp", hidden, true);
      layers_.push_back(std::move(layer));
    }
    norm_ = builder_.Norm("transformer.ln_f", hidden, true);
    for (Tensor& frequencies : inverse_frequencies_) {
      frequencies = builder_.Buffer({model_.head_dim / 2});
      aten_.tape().Run(ops::kAtenInverseFrequencies, {}, {frequencies},
                       Attrs::Of(ops::AtenRangeAttrs{model_.rope_theta}));
    }
    head_.weight = model_.tied_embeddings
                       ? embedding_
                       : builder_.Parameter("lm_head.weight", {model_.vocab, hidden});
  }

 protected:
  Tensor Hidden(const Tensor& ids) override {
    const int64_t batch = ids.shape()[0], seq_len = ids.shape()[1];
    Enter(model_tag_, {});
    Tensor embeddings = Embed(ids, embedding_);
    auto inputs = std::make_shared<LayerInputs>();
    inputs->positions_first = true;
    inputs->position_ids = MakePositionIds(aten_, seq_len);
    FindPackedSequences(aten_, batch, seq_len);
    inputs->mask = eager() ? MakeEagerMask(aten_, embeddings.dtype(), batch, seq_len)
                           : MakeCausalFlags(aten_, batch, seq_len);
    Tensor hidden = embeddings;
    Enter(rotary_tag_, hidden);
    std::tie(inputs->cos, inputs->sin) =
        MakeRotary(aten_, inverse_frequencies_[0], seq_len, hidden.dtype());
    for (const FalconLayer& layer : layers_) {
      Tensor entered = Enter(layer.self, hidden);
      Tensor out = RunLayer(inputs, entered, [this, &layer](const LayerInputs& in,
                                                            const Tensor& x) {
        return Layer(layer, in, x);
      });
      entered = {};
      hidden = Leave(layer.self, std::move(out));
    }
    Tensor outputs = hidden;  // the last block's tuple
    Tensor normed = ApplyNorm(norm_, hidden);
    hidden = std::move(normed);
    Tensor positions = inputs->position_ids, mask = inputs->mask;
    Tensor cos = inputs->cos, sin = inputs->sin;
    inputs.reset();
    positions = {};
    embeddings = {};
    mask = {};
    sin = {};
    cos = {};
    last_scores_ = {};
    outputs = {};
    return Leave(model_tag_, std::move(hidden));
  }

  Tensor* SecondOutput() override { return eager() ? &last_scores_ : nullptr; }

 private:
  // FalconLinear writes x @ W.T, so that autocast converts the weight at each use.
  LinearModule Linear(const std::string& name, int64_t in, int64_t out) {
    LinearModule module = builder_.Linear(name, in, out, model_.attention_bias);
    module.falcon = true;
    return module;
  }

  Tensor ApplyNorm(const NormModule& norm, const Tensor& x) {
    return ApplyLayerNorm(aten_, norm, model_.norm_eps, x);
  }

  struct Heads {
    Tensor q, k, v;  // [B, S, heads, D]
  };

  // One product, cut by a slice and by lists of indices; the new decoder repeats K and V at once.
  Heads Split(Tensor fused) {
    const int64_t batch = fused.shape()[0], seq_len = fused.shape()[1], d = model_.head_dim;
    if (!model_.separate_norms) {
      const int64_t heads = model_.heads + 2;
      Tensor rows = aten_.View(std::move(fused), {batch, seq_len, heads, d});
      Tensor q = aten_.Slice(rows, 2, 0, model_.heads);
      Tensor k = aten_.Index(rows, 2, heads - 2);
      Tensor v = aten_.Index(rows, 2, heads - 1);
      return {std::move(q), std::move(k), std::move(v)};
    }
    const int64_t groups = model_.heads / model_.kv_heads;
    Tensor rows = aten_.View(std::move(fused), {batch, seq_len, model_.kv_heads, groups + 2, d});
    Tensor q = aten_.Slice(rows, 3, 0, groups);
    Tensor k = aten_.Index(rows, 3, groups);
    Tensor v = aten_.Index(rows, 3, groups + 1);
    const Dims shape = q.shape(), flat{batch, seq_len, model_.heads, d};
    Tensor wide_k = aten_.Expand(k, shape);
    k = std::move(wide_k);
    Tensor wide_v = aten_.Expand(v, shape);
    v = std::move(wide_v);
    Heads heads{aten_.Reshape(q, flat), aten_.Reshape(k, flat), aten_.Reshape(v, flat)};
    q = {};
    k = {};
    v = {};
    return heads;
  }

  Tensor HeadsFirst(Tensor x) {
    const Dims s = x.shape();
    return aten_.Reshape(aten_.Transpose(std::move(x), 1, 2), {s[0], s[2], s[1], s[3]});
  }

  std::pair<Tensor, Tensor> SelfAttention(const FalconLayer& layer, const LayerInputs& in,
                                          const Tensor& input) {
    Tensor x = Enter(layer.attention, input);
    Tensor fused = ApplyLinear(aten_, layer.qkv, x);
    Heads heads = Split(fused);
    heads.q = HeadsFirst(std::move(heads.q));
    heads.k = HeadsFirst(std::move(heads.k));
    heads.v = HeadsFirst(std::move(heads.v));
    auto [q, k] = ApplyRotary(aten_, heads.q, heads.k, in.cos, in.sin);
    heads.q = std::move(q);
    heads.k = std::move(k);
    Tensor scores;
    Tensor out = eager() ? EagerAttention(heads.q, heads.k, heads.v, in.mask, x.dtype(), scores)
                         : aten_.Sdpa(heads.q, heads.k, heads.v,
                                      {1 / std::sqrt(static_cast<double>(model_.head_dim)), 0,
                                       true, true});
    const Dims s = out.shape();
    Tensor viewed = aten_.View(out, s);
    out = std::move(viewed);
    Tensor permuted = aten_.Transpose(out, 1, 2);
    out = std::move(permuted);
    Tensor flat = aten_.Reshape(out, {s[0], s[2], s[1] * s[3]});
    out = std::move(flat);
    Tensor projected = ApplyLinear(aten_, layer.dense, out);
    out = std::move(projected);
    fused = {};
    heads.q = {};
    heads.k = {};
    heads.v = {};
    out = Leave(layer.attention, std::move(out));
    if (scores) scores = Leave(layer.attention, std::move(scores));  // an output like the other
    return {std::move(out), std::move(scores)};
  }

  Tensor EagerAttention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                        Dtype dtype, Tensor& scores) {
    scores = aten_.DivInPlace(aten_.Matmul(q, aten_.Transpose(k, 2, 3)),
                              std::sqrt(static_cast<double>(model_.head_dim)));
    Tensor probabilities = aten_.Softmax(aten_.Add(scores, mask), dtype);
    scores = std::move(probabilities);
    return aten_.Matmul(scores, v);
  }

  Tensor Mlp(const FalconLayer& layer, const Tensor& input) {
    Tensor x = Enter(layer.mlp, input);
    Tensor up = Enter(layer.activation, ApplyLinear(aten_, layer.up, x));
    Tensor hidden = Leave(layer.activation, aten_.Gelu(std::move(up)));
    Tensor down = ApplyLinear(aten_, layer.down, hidden);
    hidden = std::move(down);
    return Leave(layer.mlp, std::move(hidden));
  }

  Tensor Layer(const FalconLayer& layer, const LayerInputs& in, const Tensor& x) {
    Tensor fed, scores, attended, mlp_in;  // in reverse: so they go when a recomputation stops
    Tensor attention_in = ApplyNorm(layer.norm, x);
    if (model_.separate_norms) mlp_in = ApplyNorm(layer.mlp_norm, x);
    std::tie(attended, scores) = SelfAttention(layer, in, attention_in);
    if (!model_.separate_norms) mlp_in = attention_in;
    fed = aten_.AddInPlace(Mlp(layer, mlp_in), attended);
    Tensor dropped = aten_.Dropout(fed, dropout());
    Tensor out = aten_.Add(x, dropped);
    dropped = {};
    attention_in = {};
    mlp_in = {};
    attended = {};
    fed = {};
    // A part of the block's outputs, until the next block's. A reentrant recomputation goes
    // backward from it as well, the other kind drops it.
    if (!aten_.in_backward() || config_.checkpoint.reentrant) last_scores_ = std::move(scores);
    return out;
  }

  Tensor embedding_;
  std::vector<FalconLayer> layers_;
  NormModule norm_;
  std::array<Tensor, 2> inverse_frequencies_;
  Tensor last_scores_;
  ModuleTag model_tag_, rotary_tag_;
};

}  // namespace

std::unique_ptr<HfModel> MakeFalcon(Aten& aten, const Workload& workload,
                                    const TrainConfig& config) {
  return std::make_unique<Falcon>(aten, workload, config);
}

}  // namespace hbmtune::lowering
